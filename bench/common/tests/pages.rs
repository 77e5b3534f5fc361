//! The pages in `docs/results` are what their templates make of the figures beside them.

use std::path::Path;

use toroid_bench_common::{Error, pages};

#[test]
fn every_page_is_made_from_its_template_and_the_kept_figures() -> Result<(), Error> {
    let folder = Path::new(pages::RESULTS);
    let made = pages::render_kept(folder)?;
    assert!(!made.is_empty());
    for page in made {
        let committed = std::fs::read_to_string(folder.join(&page.file))?;
        assert!(
            committed == page.text,
            "{}: run `cargo run -p toroid-bench-common` in bench",
            page.file
        );
    }
    Ok(())
}
