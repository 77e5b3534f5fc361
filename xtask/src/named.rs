//! Tests that pages name and the tree does not have.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Context;
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// For every name in a column `test` of a page's table, below `root`, that is no function of Rust or Python source: a line that says so.
///
/// # Errors
/// A file that cannot be read.
pub fn missing(root: &Path) -> anyhow::Result<Vec<String>> {
    let read =
        |path: &Path| std::fs::read_to_string(path).with_context(|| path.display().to_string());
    let mut functions = BTreeSet::new();
    for (extension, keyword) in [("rs", "fn "), ("py", "def ")] {
        for path in crate::files(root, &[extension])? {
            let text = read(&path)?;
            for (at, _) in text.match_indices(keyword) {
                let name = &text[at + keyword.len()..];
                let end = name
                    .find(|c: char| !is_part_of_a_name(c))
                    .unwrap_or(name.len());
                functions.insert(name[..end].to_owned());
            }
        }
    }
    let mut missing = Vec::new();
    for path in crate::files(root, &["md"])? {
        let page = path.strip_prefix(root).unwrap_or(&path).display();
        for name in named(&read(&path)?) {
            if !functions.contains(&name) {
                missing.push(format!("{page}: {name}: the tree has no such test"));
            }
        }
    }
    Ok(missing)
}

fn is_part_of_a_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// The names in columns `test`.
fn named(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    // The column of the present cell, that of tests, and whether this is the table's head.
    let (mut column, mut of_tests, mut is_head) = (0, None, false);
    for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::TableHead) => (column, of_tests, is_head) = (0, None, true),
            Event::Start(Tag::TableRow) => column = 0,
            Event::End(TagEnd::TableHead) => is_head = false,
            Event::End(TagEnd::TableCell) => column += 1,
            Event::End(TagEnd::Table) => of_tests = None,
            Event::Text(word) if is_head && &*word == "test" => of_tests = Some(column),
            Event::Code(name)
                if !is_head && of_tests == Some(column) && name.chars().all(is_part_of_a_name) =>
            {
                names.push(name.into_string());
            }
            _ => {}
        }
    }
    names
}
