//! Makes all pages of `docs/results` again from the figures that are kept there: `cargo run -p toroid-bench-common`. Another folder of figures,
//! such as one that `toroid gpu bench --write` made, is its argument.

use std::path::Path;
use std::process::ExitCode;

use toroid_bench_common::{Error, pages};

fn main() -> ExitCode {
    match render() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn render() -> Result<(), Error> {
    let given = std::env::args_os().nth(1);
    let folder = given
        .as_deref()
        .map_or(Path::new(pages::RESULTS), Path::new);
    for page in pages::render_kept(folder)? {
        pages::write(&folder.join(&page.file), &page.text)?;
        println!("{}", page.file);
    }
    Ok(())
}
