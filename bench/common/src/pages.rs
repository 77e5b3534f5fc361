//! The pages of `docs/results`.
//!
//! A benchmark keeps its figures in two files: `NAME.json` has the rows that are compared with something, and
//! `data/NAME.json` has what else the page shows. Every template `templates/NAME.EXTENSION.j2` makes `NAME.EXTENSION` from
//! them alone, so that a page can be made again without measuring.

use std::path::{Path, PathBuf};

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, UndefinedBehavior, path_loader};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;

use crate::Error;

/// Where results are kept.
pub const RESULTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/results");

/// A file that a template makes.
pub struct Made {
    /// Its name in the folder of results.
    pub file: String,
    /// Its contents.
    pub text: String,
}

/// Makes the pages of a benchmark from its figures, prints the one in Markdown, and writes all with the figures to `out`.
pub fn publish(
    name: &str,
    rows: &impl Serialize,
    data: &impl Serialize,
    out: Option<&Path>,
) -> Result<Vec<Made>, Error> {
    let made = match out {
        Some(out) => store(name, rows, data, out)?,
        None => {
            let data = serde_json::to_value(data)?;
            render(name, &serde_json::to_value(rows)?, &data)?
        }
    };
    for page in made.iter().filter(|page| page.file.ends_with(".md")) {
        print!("{}", page.text);
    }
    Ok(made)
}

/// Makes the pages of a benchmark from its figures, and writes all with the figures to `out`.
pub fn store(
    name: &str,
    rows: &impl Serialize,
    data: &impl Serialize,
    out: &Path,
) -> Result<Vec<Made>, Error> {
    let data = serde_json::to_value(data)?;
    let made = render(name, &serde_json::to_value(rows)?, &data)?;
    keep(out, name, rows)?;
    write(&out.join(format!("data/{name}.json")), &by_line(&data)?)?;
    for page in &made {
        write(&out.join(&page.file), &page.text)?;
    }
    Ok(made)
}

/// Makes all pages of all benchmarks from the figures that are kept in `folder`. A template without figures there makes none.
pub fn render_kept(folder: &Path) -> Result<Vec<Made>, Error> {
    let mut made = Vec::new();
    for name in names()? {
        if !folder.join(format!("{name}.json")).exists() {
            continue;
        }
        let rows: Json = kept(folder, &name)?;
        made.extend(render(&name, &rows, &kept(&folder.join("data"), &name)?)?);
    }
    Ok(made)
}

/// Makes the pages of one benchmark.
pub fn render(name: &str, rows: &Json, data: &Json) -> Result<Vec<Made>, Error> {
    let environment = environment()?;
    let mut context = data.clone();
    if let Json::Object(context) = &mut context {
        context.insert("rows".to_owned(), rows.clone());
    }
    let mut made = Vec::new();
    for template in templates()? {
        let Some(file) = template.strip_suffix(".j2") else {
            continue;
        };
        if file.split_once('.').is_some_and(|(stem, _)| stem == name) {
            let text = environment
                .get_template(&template)
                .and_then(|template| template.render(Serde(&context)))
                .map_err(|error| format!("{template}: {error:#}"))?;
            let file = file.to_owned();
            made.push(Made { file, text });
        }
    }
    Ok(made)
}

/// Files of the folder of templates, sorted.
fn templates() -> Result<Vec<String>, Error> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder_of_templates())? {
        all.extend(entry?.file_name().into_string().ok());
    }
    all.sort();
    Ok(all)
}

/// The benchmarks that may have pages: those of the templates but for macros, which begin with `_`.
pub fn names() -> Result<Vec<String>, Error> {
    let templates = templates()?;
    let stems = templates.iter().filter_map(|file| file.split_once('.'));
    let mut names: Vec<_> = stems
        .map(|(stem, _)| stem.to_owned())
        .filter(|stem| !stem.starts_with('_'))
        .collect();
    names.dedup();
    Ok(names)
}

fn folder_of_templates() -> PathBuf {
    Path::new(RESULTS).join("templates")
}

fn environment() -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder()
        .keep_trailing_newline(true)
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build()?;
    environment.set_syntax(syntax);
    environment.set_loader(path_loader(folder_of_templates()));
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    // Nothing where there is no figure.
    let or_nothing =
        |value: Option<f64>, text: &dyn Fn(f64) -> String| value.map_or_else(String::new, text);
    environment.add_filter("number", move |value| or_nothing(value, &number));
    environment.add_filter("figure", move |value| or_nothing(value, &figure));
    environment.add_filter("plain", move |value| {
        or_nothing(value, &|value| value.to_string())
    });
    environment.add_filter("fixed", move |value: Option<f64>, decimals: usize| {
        or_nothing(value, &|value| format!("{value:.decimals$}"))
    });
    environment.add_filter("power", move |value: Option<f64>, decimals: usize| {
        or_nothing(value, &|value| format!("{value:.decimals$e}"))
    });
    environment.add_filter("percent", move |value| {
        or_nothing(value, &|value| format!("{:.0} %", 100.0 * value))
    });
    environment.add_filter("yes", |value: Option<bool>| match value {
        Some(true) => "yes",
        Some(false) => "no",
        None => "",
    });
    Ok(environment)
}

/// Thousands parted by commas; two digits of what is below a thousand and not whole.
pub fn number(value: f64) -> String {
    if value < 1000.0 && value != value.trunc() {
        return format!("{value:.2}");
    }
    let text = format!("{value:.1}");
    let text = text.strip_suffix(".0").unwrap_or(&text);
    let (digits, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut parted = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            parted.push(',');
        }
        parted.push(digit);
    }
    parted + rest
}

/// Four digits.
pub fn figure(value: f64) -> String {
    let decimals = match value {
        value if value >= 1000.0 => 0,
        value if value >= 100.0 => 1,
        value if value >= 10.0 => 2,
        _ => 3,
    };
    format!("{value:.decimals$}")
}

/// Keeps a result as `NAME.json`.
pub fn keep(folder: &Path, name: &str, value: &impl Serialize) -> Result<(), Error> {
    write(&folder.join(format!("{name}.json")), &json(value)?)
}

/// A value as JSON that people read.
pub fn json(value: &impl Serialize) -> Result<String, Error> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}

/// What [`keep`] kept.
pub fn kept<T: DeserializeOwned>(folder: &Path, name: &str) -> Result<T, Error> {
    let path = folder.join(format!("{name}.json"));
    let fail = |error: &dyn std::fmt::Display| Error::from(format!("{}: {error}", path.display()));
    let text = std::fs::read_to_string(&path).map_err(|error| fail(&error))?;
    serde_json::from_str(&text).map_err(|error| fail(&error))
}

/// Writes a file, and the folders above it where there are none.
pub fn write(path: &Path, text: &str) -> Result<(), Error> {
    path.parent()
        .map_or(Ok(()), std::fs::create_dir_all)
        .and_then(|()| std::fs::write(path, text))
        .map_err(|error| format!("{}: {error}", path.display()).into())
}

/// JSON with a line for each field, and for each element of a list.
fn by_line(data: &Json) -> Result<String, Error> {
    let Json::Object(fields) = data else {
        return Err("the data of a page must be an object".into());
    };
    let mut lines = Vec::new();
    for (name, value) in fields {
        let value = match value {
            Json::Array(list) if !list.is_empty() => {
                let elements: Vec<_> = list.iter().map(|each| format!("    {each}")).collect();
                format!("[\n{}\n  ]", elements.join(",\n"))
            }
            value => value.to_string(),
        };
        lines.push(format!("  {}: {value}", Json::from(name.as_str())));
    }
    Ok(format!("{{\n{}\n}}\n", lines.join(",\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_parted_by_thousands() {
        let all = [
            (0.0, "0"),
            (0.5, "0.50"),
            (999.0, "999"),
            (1000.0, "1,000"),
            (1023.5, "1,023.5"),
            (49_992_000.0, "49,992,000"),
        ];
        for (value, text) in all {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn figures_have_four_digits() {
        assert_eq!(
            [0.5, 12.345, 123.45, 1234.5].map(figure),
            ["0.500", "12.35", "123.5", "1234"]
        );
    }
}
