//! The graph of modules: an arrow from each module to every module of its crate that it uses.
//!
//! A module is a file, or a module within a file; tests are left out. Arrows come from every path in the source, through re-exports to the
//! module that defines the item. A crate's root that only re-exports does not use what it re-exports. Method calls are not resolved: a
//! module that has a value has its type by some path, in nearly every case.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use petgraph::algo::tarjan_scc;
use petgraph::graphmap::DiGraphMap;
use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, UseTree, Visibility};

/// The path of a module in its crate; empty for the root.
type Name = Vec<String>;

/// One module of a crate.
#[derive(Default)]
struct Module {
    /// Paths that its code names, with the names that `use` gives to some of them.
    paths: Vec<Name>,
    /// What its `use` declarations bring in: local name, path.
    imports: BTreeMap<String, Name>,
    /// Modules all of whose items it brings in.
    globs: Vec<Name>,
    /// Paths of `pub use`.
    exports: Vec<Name>,
}

/// The modules of a crate, and which uses which.
pub struct Graph {
    /// The crate's folder, from the root of the repository.
    pub name: String,
    arrows: BTreeMap<Name, BTreeSet<Name>>,
}

/// Modules that use each other, directly or through others.
#[derive(Debug, PartialEq, Eq)]
pub struct Circle {
    /// Their paths.
    pub modules: Vec<String>,
    /// Whether one module of the crate holds them all: they are parts of one algorithm.
    pub within_folder: bool,
}

impl fmt::Display for Circle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.within_folder {
            "circle in a folder"
        } else {
            "CIRCLE"
        };
        write!(f, "{place}: {}", self.modules.join(", "))
    }
}

fn shown(name: &[String]) -> String {
    if name.is_empty() {
        "(root)".to_owned()
    } else {
        name.join("::")
    }
}

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.name)?;
        for (from, to) in &self.arrows {
            let to: Vec<_> = to.iter().map(|name| shown(name)).collect();
            writeln!(f, "  {} -> {}", shown(from), to.join(", "))?;
        }
        Ok(())
    }
}

impl Graph {
    /// The graphs of every crate below a folder that has a library or a program.
    ///
    /// # Errors
    /// A file that cannot be read or parsed.
    pub fn of_tree(root: &Path) -> anyhow::Result<Vec<Graph>> {
        let mut graphs = Vec::new();
        for manifest in crate::files(root, &["toml"])? {
            let Some(folder) = manifest
                .parent()
                .filter(|_| manifest.ends_with("Cargo.toml"))
            else {
                continue;
            };
            for start in ["src/lib.rs", "src/main.rs"] {
                let start = folder.join(start);
                if start.is_file() {
                    let name = folder.strip_prefix(root).unwrap_or(folder);
                    graphs.push(Graph::of_crate(&name.display().to_string(), &start)?);
                }
            }
        }
        Ok(graphs)
    }

    /// The graph of the crate whose root is this file.
    ///
    /// # Errors
    /// A file that cannot be read or parsed.
    pub fn of_crate(name: &str, root: &Path) -> anyhow::Result<Graph> {
        let mut modules = BTreeMap::new();
        let folder = root.parent().unwrap_or(root);
        read(root, folder, Vec::new(), &mut modules)?;
        let mut arrows: BTreeMap<Name, BTreeSet<Name>> = BTreeMap::new();
        for (from, module) in &modules {
            let to = arrows.entry(from.clone()).or_default();
            // A root that re-exports is a front, not a user.
            let exports = if from.is_empty() {
                &[][..]
            } else {
                &module.exports
            };
            let imports = module
                .imports
                .values()
                .filter(|path| !module.exports.contains(path));
            for path in module.paths.iter().chain(exports).chain(imports) {
                if let Some(target) = resolve(&modules, from, path, 0)
                    && target != *from
                {
                    to.insert(target);
                }
            }
            for path in module
                .globs
                .iter()
                .filter(|path| !module.exports.contains(path))
            {
                if let Some(target) = resolve(&modules, from, path, 0)
                    && target != *from
                {
                    to.insert(target);
                }
            }
        }
        Ok(Graph {
            name: name.to_owned(),
            arrows,
        })
    }

    /// The circles.
    #[must_use]
    pub fn circles(&self) -> Vec<Circle> {
        let mut graph = DiGraphMap::<&[String], ()>::new();
        for (from, to) in &self.arrows {
            for to in to {
                graph.add_edge(from, to, ());
            }
        }
        let mut circles: Vec<_> = tarjan_scc(&graph)
            .into_iter()
            .filter(|members| members.len() > 1)
            .map(|mut members| {
                members.sort();
                let first = members[0].first();
                Circle {
                    within_folder: first.is_some()
                        && members.iter().all(|member| member.first() == first),
                    modules: members.into_iter().map(shown).collect(),
                }
            })
            .collect();
        circles.sort_by(|a, b| a.modules.cmp(&b.modules));
        circles
    }
}

fn read(
    file: &Path,
    folder: &Path,
    name: Name,
    modules: &mut BTreeMap<Name, Module>,
) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let parsed = syn::parse_file(&text).with_context(|| file.display().to_string())?;
    read_items(&parsed.items, folder, name, modules)
}

/// Whether an item is for tests alone.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::Path(path) => path.is_ident("test"),
        syn::Meta::List(list) => list.path.is_ident("cfg") && needs_test(list.tokens.clone()),
        syn::Meta::NameValue(_) => false,
    })
}

/// Whether a condition of `cfg` holds in tests alone: `test`, or `all(…)` with it.
fn needs_test(condition: TokenStream) -> bool {
    let mut of_all = false;
    condition.into_iter().any(|token| match token {
        TokenTree::Ident(ident) => {
            of_all = ident == "all";
            ident == "test"
        }
        TokenTree::Group(group) => of_all && needs_test(group.stream()),
        _ => false,
    })
}

fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    attributes
        .iter()
        .find_map(|attribute| match &attribute.meta {
            syn::Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
                syn::Expr::Lit(syn::ExprLit {
                    lit: syn::Lit::Str(text),
                    ..
                }) => Some(text.value()),
                _ => None,
            },
            _ => None,
        })
}

fn read_items(
    items: &[Item],
    folder: &Path,
    name: Name,
    modules: &mut BTreeMap<Name, Module>,
) -> anyhow::Result<()> {
    let mut reader = Reader::default();
    for item in items {
        let Item::Mod(child) = item else {
            reader.visit_item(item);
            continue;
        };
        if is_test(&child.attrs) {
            continue;
        }
        let mut child_name = name.clone();
        child_name.push(child.ident.to_string());
        let child_folder = folder.join(child.ident.to_string());
        if let Some((_, items)) = &child.content {
            read_items(items, &child_folder, child_name, modules)?;
            continue;
        }
        let candidates: Vec<PathBuf> = match path_attribute(&child.attrs) {
            Some(path) => vec![folder.join(path)],
            None => vec![
                folder.join(format!("{}.rs", child.ident)),
                child_folder.join("mod.rs"),
            ],
        };
        if let Some(file) = candidates.iter().find(|file| file.is_file()) {
            read(file, &child_folder, child_name, modules)?;
        }
    }
    modules.insert(name, reader.module);
    Ok(())
}

/// The module that a path from `from` leads to: that of the item, where it can be told.
fn resolve(
    modules: &BTreeMap<Name, Module>,
    from: &[String],
    path: &[String],
    depth: usize,
) -> Option<Name> {
    // Imports that go round in a circle name nothing.
    if depth > 16 {
        return None;
    }
    let (first, mut rest) = path.split_first()?;
    let mut at = match first.as_str() {
        "crate" | "$crate" => Name::new(),
        "self" => from.to_vec(),
        "super" => from[..from.len().checked_sub(1)?].to_vec(),
        name => {
            let mut child = from.to_vec();
            child.push(name.to_owned());
            if modules.contains_key(&child) {
                child
            } else {
                let import = modules.get(from)?.imports.get(name)?;
                if import.first().is_some_and(|first| first == name) {
                    return None;
                }
                let whole = [import.as_slice(), rest].concat();
                return resolve(modules, from, &whole, depth + 1);
            }
        }
    };
    while let Some((next, after)) = rest.split_first() {
        if next == "super" {
            at.pop()?;
            rest = after;
            continue;
        }
        let mut child = at.clone();
        child.push(next.clone());
        if modules.contains_key(&child) {
            at = child;
            rest = after;
            continue;
        }
        let module = modules.get(&at)?;
        if let Some(import) = module.imports.get(next)
            && import.first() != Some(next)
        {
            let whole = [import.as_slice(), after].concat();
            return resolve(modules, &at, &whole, depth + 1).or(Some(at));
        }
        return Some(at);
    }
    Some(at)
}

/// Reads the paths of one module.
#[derive(Default)]
struct Reader {
    module: Module,
}

impl Reader {
    fn tree(&mut self, tree: &UseTree, prefix: &Name, public: bool) {
        match tree {
            UseTree::Path(path) => {
                let mut prefix = prefix.clone();
                prefix.push(path.ident.to_string());
                self.tree(&path.tree, &prefix, public);
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.tree(tree, prefix, public);
                }
            }
            UseTree::Name(name) => self.import(&name.ident.to_string(), None, prefix, public),
            UseTree::Rename(rename) => {
                let local = rename.rename.to_string();
                self.import(&rename.ident.to_string(), Some(local), prefix, public);
            }
            UseTree::Glob(_) => {
                self.module.globs.push(prefix.clone());
                if public {
                    self.module.exports.push(prefix.clone());
                }
            }
        }
    }

    fn import(&mut self, item: &str, local: Option<String>, prefix: &Name, public: bool) {
        let mut path = prefix.clone();
        if item != "self" {
            path.push(item.to_owned());
        }
        let Some(last) = path.last().cloned() else {
            return;
        };
        if public {
            self.module.exports.push(path.clone());
        }
        self.module.imports.insert(local.unwrap_or(last), path);
    }

    /// Paths within the arguments of a macro, which have no syntax tree.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path = Name::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.end(&mut path);
                    }
                    path.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' && !path.is_empty() => {
                    colons += 1
                }
                TokenTree::Group(group) => {
                    self.end(&mut path);
                    colons = 0;
                    self.tokens(group.stream());
                }
                _ => {
                    self.end(&mut path);
                    colons = 0;
                }
            }
        }
        self.end(&mut path);
    }

    fn end(&mut self, path: &mut Name) {
        if path.len() > 1 {
            self.module.paths.push(std::mem::take(path));
        }
        path.clear();
    }
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item(&mut self, item: &'ast Item) {
        let attributes = match item {
            Item::Fn(item) => &item.attrs,
            Item::Mod(item) => &item.attrs,
            Item::Impl(item) => &item.attrs,
            Item::Use(item) => &item.attrs,
            Item::Const(item) => &item.attrs,
            Item::Static(item) => &item.attrs,
            Item::Struct(item) => &item.attrs,
            Item::Enum(item) => &item.attrs,
            _ => &Vec::new(),
        };
        if !is_test(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let public = !matches!(item.vis, Visibility::Inherited);
        self.tree(&item.tree, &Name::new(), public);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Name = path
            .segments
            .iter()
            .map(|segment| segment.ident.to_string())
            .collect();
        self.module.paths.push(names);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        self.visit_path(&called.path);
        self.tokens(called.tokens.clone());
    }

    fn visit_attribute(&mut self, _: &'ast Attribute) {}

    // `pub(crate)` and `pub(super)` name modules without using them.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}
}
