//! Links of pages, and paths that the tree names, that lead nowhere.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// A link that leads nowhere.
#[derive(Debug, PartialEq, Eq)]
pub struct Broken {
    /// The page, from the root.
    pub page: String,
    /// Where the link points.
    pub target: String,
    /// What is wrong.
    pub reason: &'static str,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.page, self.target, self.reason)
    }
}

struct Page {
    anchors: BTreeSet<String>,
    links: Vec<String>,
}

fn page(text: &str) -> Page {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let (mut anchors, mut links) = (BTreeSet::new(), Vec::new());
    let mut heading: Option<String> = None;
    for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::End(TagEnd::Heading(_)) => {
                let slug = slug(&heading.take().unwrap_or_default());
                let count = seen.entry(slug.clone()).or_default();
                anchors.insert(if *count == 0 {
                    slug
                } else {
                    format!("{slug}-{count}")
                });
                *count += 1;
            }
            Event::Text(text) | Event::Code(text) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&text);
                }
            }
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                links.push(dest_url.into_string());
            }
            _ => {}
        }
    }
    Page { anchors, links }
}

/// The anchor that GitHub gives a heading.
fn slug(heading: &str) -> String {
    heading
        .to_lowercase()
        .chars()
        .filter_map(|c| match c {
            ' ' => Some('-'),
            c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
            _ => None,
        })
        .collect()
}

/// Every link of every page below `root` to a file or a heading that is not there, and every path of a page or of Rust source that begins with
/// a folder of the root and names a file that is not there.
///
/// # Errors
/// A file that cannot be read.
pub fn broken(root: &Path) -> anyhow::Result<Vec<Broken>> {
    let mut pages = BTreeMap::new();
    for path in crate::files(root, &["md"])? {
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        pages.insert(path, text);
    }
    let parsed: BTreeMap<&PathBuf, Page> = pages
        .iter()
        .map(|(path, text)| (path, page(text)))
        .collect();
    let mut found = Vec::new();
    let shown = |path: &Path| {
        path.strip_prefix(root)
            .unwrap_or(path)
            .display()
            .to_string()
    };
    for (path, page) in &parsed {
        for link in &page.links {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (file, anchor) = link
                .split_once('#')
                .map_or((link.as_str(), None), |(file, anchor)| (file, Some(anchor)));
            let mut target = (*path).clone();
            if !file.is_empty() {
                target = normal(&path.parent().unwrap_or(root).join(file));
            }
            let reason = if !target.exists() {
                "no such file"
            } else if let Some(anchor) = anchor
                && let Some(page) = parsed.get(&target)
                && !page.anchors.contains(anchor)
            {
                "no such heading"
            } else {
                continue;
            };
            found.push(Broken {
                page: shown(path),
                target: link.clone(),
                reason,
            });
        }
    }
    for path in crate::files(root, &["md", "rs", "toml", "sv", "py", "sh"])? {
        // A changelog names what was there then, and this crate's tests what is nowhere.
        if path.ends_with("CHANGELOG.md") || path.ends_with("xtask/tests/tree.rs") {
            continue;
        }
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        for named in named_files(root, &text)? {
            // A page also names files from its crate's folder.
            let mut folders = path
                .ancestors()
                .take_while(|folder| folder.starts_with(root));
            if !folders.any(|folder| folder.join(&named).exists()) {
                found.push(Broken {
                    page: shown(&path),
                    target: named,
                    reason: "the tree has no such file",
                });
            }
        }
    }
    Ok(found)
}

/// Paths from the root that a text names: a folder of the root, more folders, and a file with an extension. `NAME` stands for any.
fn named_files(root: &Path, text: &str) -> anyhow::Result<BTreeSet<String>> {
    let mut folders = Vec::new();
    for entry in std::fs::read_dir(root)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type()?.is_dir() && !name.starts_with('.') && !name.starts_with("target") {
            folders.push(name);
        }
    }
    const EXTENSIONS: [&str; 10] = [
        "md", "rs", "sv", "tasm", "toml", "svg", "png", "json", "py", "log",
    ];
    let of_path = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    let words = text.split(|c| !of_path(c));
    Ok(words
        .map(|word| word.trim_end_matches('.'))
        .filter(|word| {
            word.split_once('/')
                .is_some_and(|(folder, _)| folders.iter().any(|known| known == folder))
                && !word.contains("..")
                && !word.split('/').any(|part| part.starts_with("NAME"))
                && word
                    .rsplit_once('.')
                    .is_some_and(|(_, extension)| EXTENSIONS.contains(&extension))
        })
        .map(str::to_owned)
        .collect())
}

/// Without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => {
                out.pop();
            }
            std::path::Component::CurDir => {}
            part => out.push(part),
        }
    }
    out
}
