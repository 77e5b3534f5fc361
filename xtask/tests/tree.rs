//! The tree keeps its own rules: no circles of modules, no links that lead nowhere.
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use std::fs;
use std::path::Path;

use xtask::modules::Graph;
use xtask::{links, named};

fn write(root: &Path, name: &str, text: &str) {
    let path = root.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

#[test]
fn no_circle_of_modules_leaves_its_folder() {
    let mut circles = Vec::new();
    for graph in Graph::of_tree(&xtask::root()).unwrap() {
        let outside = graph
            .circles()
            .into_iter()
            .filter(|circle| !circle.within_folder);
        circles.extend(outside.map(|circle| format!("{}: {circle}", graph.name)));
    }
    assert!(circles.is_empty(), "{}", circles.join("\n"));
}

#[test]
fn no_link_leads_nowhere() {
    let broken = links::broken(&xtask::root()).unwrap();
    let broken: Vec<_> = broken.iter().map(ToString::to_string).collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn every_test_that_a_page_names_is_there() {
    let missing = named::missing(&xtask::root()).unwrap();
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn circles_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    write(
        root,
        "src/lib.rs",
        "mod a; mod b; mod c; mod d; mod e; mod f; pub use a::A;",
    );
    // By a path in a type, through the root's re-export.
    write(root, "src/a.rs", "pub struct A(crate::b::B);");
    write(root, "src/b.rs", "pub struct B; fn f(_: &crate::A) {}");
    // Inside of a folder.
    write(root, "src/c.rs", "mod one; mod two;");
    write(root, "src/c/one.rs", "use super::two::Two; pub struct One;");
    write(
        root,
        "src/c/two.rs",
        "pub struct Two; fn f() { assert!(super::one::g()); }",
    );
    // Neither tests count, nor who may see an item.
    write(
        root,
        "src/d.rs",
        "#[cfg(test)] mod tests { use crate::e::E; } pub struct D;",
    );
    write(root, "src/e.rs", "pub(super) struct E(super::d::D);");
    // By the arguments of a macro.
    write(
        root,
        "src/f.rs",
        "pub fn f() { println!(\"{}\", crate::a::x()); }",
    );
    let graph = Graph::of_crate("x", &root.join("src/lib.rs")).unwrap();
    let circles: Vec<_> = graph.circles().iter().map(ToString::to_string).collect();
    assert_eq!(
        circles,
        ["CIRCLE: a, b", "circle in a folder: c::one, c::two"]
    );
    assert!(graph.to_string().contains("f -> a"), "{graph}");
}

#[test]
fn broken_links_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    write(
        root,
        "README.md",
        "# One `two`\n[a](docs/a.md) [b](docs/b.md) [c](#one-two) [d](#three) [e](https://example.org/x)\n",
    );
    write(
        root,
        "docs/a.md",
        "# A\n## A\n[up](../README.md#one-two) [down](../README.md#two) [self](#a-1) `docs/none.md`\n",
    );
    let broken: Vec<_> = links::broken(root)
        .unwrap()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        broken,
        [
            "README.md: docs/b.md: no such file",
            "README.md: #three: no such heading",
            "docs/a.md: ../README.md#two: no such heading",
            "README.md: docs/b.md: the tree has no such file",
            "docs/a.md: docs/none.md: the tree has no such file",
        ]
    );
}

#[test]
fn missing_tests_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    write(root, "src/lib.rs", "#[test]\nfn it_is_there() {}\n");
    write(root, "test_a.py", "def test_it_is_there(): ...\n");
    write(
        root,
        "a.md",
        "| `no_name` | test |\n| --- | --- |\n| `not_there` | `it_is_there`, `test_it_is_there`, `is_missing`; `a path/of.rs` |\n\n| what | where |\n| --- | --- |\n| x | `not_there` |\n",
    );
    let missing = named::missing(root).unwrap();
    assert_eq!(missing, ["a.md: is_missing: the tree has no such test"]);
}
