//! Which files of SystemVerilog a module needs.

use std::collections::{BTreeMap, BTreeSet};

/// A module or package that is not among the files.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no module or package {0} among the sources")]
pub struct UnknownModule(pub String);

/// What a file defines: its name without folder and extension.
fn stem(path: &str) -> &str {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split('.').next().unwrap_or(file)
}

/// The identifiers of a text outside its comments and strings.
fn identifiers(text: &str) -> BTreeSet<&str> {
    let mut found = BTreeSet::new();
    let bytes = text.as_bytes();
    let at = |i: usize| bytes.get(i).copied().unwrap_or(0);
    let mut i = 0;
    while i < bytes.len() {
        let start = i;
        match bytes[i] {
            b'/' if at(i + 1) == b'/' => {
                while i < bytes.len() && bytes[i] != b'\n' {
                    i += 1;
                }
            }
            b'/' if at(i + 1) == b'*' => {
                i += 2;
                while i < bytes.len() && !(bytes[i] == b'*' && at(i + 1) == b'/') {
                    i += 1;
                }
                i += 2;
            }
            b'"' => {
                i += 1;
                while i < bytes.len() && bytes[i] != b'"' {
                    i += if bytes[i] == b'\\' { 2 } else { 1 };
                }
                i += 1;
            }
            byte if byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' => {
                while at(i).is_ascii_alphanumeric() || at(i) == b'_' || at(i) == b'$' {
                    i += 1;
                }
                found.insert(&text[start..i]);
            }
            _ => i += 1,
        }
    }
    found
}

/// The files that a module needs, each after those that it uses itself, so that packages come before their users.
///
/// Files are paths and texts, each with one module or package, named after it; what a file mentions outside comments and strings it uses.
///
/// # Errors
/// If there is no such module.
pub fn closure<P: AsRef<str>, T: AsRef<str>>(
    files: &[(P, T)],
    top: &str,
) -> Result<Vec<(String, String)>, UnknownModule> {
    let modules: BTreeMap<&str, (&str, &str)> = files
        .iter()
        .map(|(path, text)| (stem(path.as_ref()), (path.as_ref(), text.as_ref())))
        .collect();
    let mut order = Vec::new();
    visit(&modules, top, &mut BTreeSet::new(), &mut order)?;
    Ok(order)
}

fn visit<'a>(
    modules: &BTreeMap<&'a str, (&'a str, &'a str)>,
    name: &str,
    seen: &mut BTreeSet<&'a str>,
    order: &mut Vec<(String, String)>,
) -> Result<(), UnknownModule> {
    let Some((&name, &(path, text))) = modules.get_key_value(name) else {
        return Err(UnknownModule(name.to_owned()));
    };
    if !seen.insert(name) {
        return Ok(());
    }
    for used in identifiers(text) {
        if modules.contains_key(used) {
            visit(modules, used, seen, order)?;
        }
    }
    order.push((path.to_owned(), text.to_owned()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_come_behind_what_they_use() {
        let files = [
            ("lib/a_pkg.sv", "package a_pkg; endpackage"),
            ("lib/b.sv", "module b; import a_pkg::*; endmodule // unused"),
            ("lib/unused.sv", "module unused; endmodule"),
            (
                "core/top.sv",
                "module top; /* unused */ b i_b(); initial $display(\"unused\"); endmodule",
            ),
        ];
        let order = closure(&files, "top").unwrap();
        let names: Vec<&str> = order.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["lib/a_pkg.sv", "lib/b.sv", "core/top.sv"]);
        assert_eq!(
            closure(&files, "none"),
            Err(UnknownModule("none".to_owned()))
        );
    }
}
