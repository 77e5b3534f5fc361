//! Makes all pages of `docs/results` again from the figures that are kept there: `cargo run -p toroid-bench-common`.

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
    let folder = Path::new(pages::RESULTS);
    for page in pages::render_kept(folder)? {
        pages::write(&folder.join(&page.file), &page.text)?;
        println!("{}", page.file);
    }
    Ok(())
}
