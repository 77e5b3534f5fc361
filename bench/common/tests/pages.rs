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

/// Pages of benchmarks whose figures are not kept, since nobody could measure them.
const UNMEASURED: [&str; 1] = ["gpu"];

#[test]
fn a_page_without_figures_is_not_there() -> Result<(), Error> {
    let folder = Path::new(pages::RESULTS);
    for name in pages::names()? {
        let kept = ["NAME.json", "data/NAME.json", "NAME.md"]
            .map(|file| folder.join(file.replace("NAME", &name)).exists());
        let measured = !UNMEASURED.contains(&name.as_str());
        assert!(kept == [measured; 3], "{name}: {kept:?}");
    }
    Ok(())
}

#[test]
fn the_readme_of_the_cores_has_the_kept_figures() -> Result<(), Error> {
    let folder = Path::new(pages::RESULTS);
    let rows: Vec<serde_json::Value> = pages::kept(folder, "hw-streaming")?;
    let readme = std::fs::read_to_string(folder.join("../../hw/README.md"))?;
    let orders = [("halves", "halves side by side"), ("natural", "natural")];
    for (n, lanes) in [(512, 32), (1024, 64), (2048, 128), (4096, 32)] {
        for (input, order) in orders {
            let mut line = format!("| {n}, {lanes} | {order} |");
            for kind in ["latency", "DSP48E1", "LUT", "BRAM of 36 Kbit"] {
                let name = format!("N = {n}, {lanes} lanes, {input} input: {kind}");
                let row = rows.iter().find(|row| row["row"] == *name).ok_or(name)?;
                let [ours, paper] = ["ours", "reference"].map(|side| row[side].as_f64());
                let [ours, paper] =
                    [ours, paper].map(|value| value.map_or("-".to_owned(), pages::number));
                line += &format!(" {ours} ({paper}) |");
            }
            assert!(readme.contains(&line), "hw/README.md lacks {line}");
        }
    }
    Ok(())
}
