//! Pages that show the example show it as it is.

#[test]
fn pages_quote_the_example() {
    let example = include_str!("../examples/multiply.rs");
    assert!(include_str!("../../../README.md").contains(example));
    assert!(include_str!("../../../docs/start.md").contains(example));
}
