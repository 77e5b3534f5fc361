//! `cargo xtask`: checks of the tree itself.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use xtask::modules::Graph;
use xtask::{links, named, root};

#[derive(Parser)]
#[command(about = "Checks of the tree itself", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Print which module uses which, and the circles among them; fails where a circle leaves its folder
    Modules {
        /// Only this crate
        #[arg(long, value_name = "NAME")]
        only: Option<String>,
        /// Print the circles alone
        #[arg(long)]
        circles: bool,
    },
    /// Check that every link of a page and every path that the tree names leads somewhere, and that every test that a page names is there
    Links,
}

fn main() -> anyhow::Result<ExitCode> {
    let bad = match Arguments::parse().command {
        Command::Modules { only, circles } => {
            let mut bad = 0;
            for graph in Graph::of_tree(&root())? {
                if only.as_ref().is_some_and(|only| *only != graph.name) {
                    continue;
                }
                if !circles {
                    print!("{graph}");
                }
                for circle in graph.circles() {
                    println!("{}: {circle}", graph.name);
                    bad += usize::from(!circle.within_folder);
                }
            }
            println!("{bad} circles leave their folder");
            bad
        }
        Command::Links => {
            let broken = links::broken(&root())?;
            for link in &broken {
                println!("{link}");
            }
            let missing = named::missing(&root())?;
            for line in &missing {
                println!("{line}");
            }
            println!(
                "{} links lead nowhere, {} tests are not there",
                broken.len(),
                missing.len()
            );
            broken.len() + missing.len()
        }
    };
    Ok(if bad == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
