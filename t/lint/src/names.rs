//! Finds the files of a crate to which a file refers by paths: in `use` lines, in code, and inside macros.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::ToTokens;
use syn::visit::{self, Visit};
use syn::{Item, ItemUse, UseTree};

use crate::tree::{Crate, Module};

/// For each module, the modules to which it refers, with the line of the first reference.
pub type Names = BTreeMap<Module, BTreeMap<Module, usize>>;

/// `use` lines by the name that they import: `["cache", "key", "Key"]` for `Key`.
type Imports = BTreeMap<String, Vec<String>>;

pub fn names(files: &Crate) -> Names {
    let imports: BTreeMap<&Module, Imports> = files
        .iter()
        .map(|(module, source)| (module, imports_of(module, &source.items, files)))
        .collect();
    let mut names = Names::new();
    for (module, source) in files {
        let mut scan = Scan {
            files,
            imports: &imports[module],
            found: Vec::new(),
        };
        scan.items(module, &source.items);
        let named = names.entry(module.clone()).or_default();
        for (path, line) in scan.found {
            let other = file_of(path, files, &imports);
            if other != *module {
                let first = named.entry(other).or_insert(line);
                *first = line.min(*first);
            }
        }
    }
    names
}

/// Returns the file in which a path ends. If a module only re-exports a name, follows it to its origin.
fn file_of(mut path: Vec<String>, files: &Crate, imports: &BTreeMap<&Module, Imports>) -> Module {
    let mut seen = BTreeSet::new();
    loop {
        let mut module = path.clone();
        while !files.contains_key(&module) {
            module.pop();
        }
        let passed_on = path
            .get(module.len())
            .and_then(|name| imports[&module].get(name));
        let Some(origin) = passed_on.filter(|_| seen.insert(path.clone())) else {
            return module;
        };
        path = [&origin[..], &path[module.len() + 1..]].concat();
    }
}

/// Returns the path from the crate's root. Returns None if the path does not begin with a child of the module, because
/// then its name belongs to another crate or to the same file.
fn absolute(module: &Module, path: &[String], files: &Crate) -> Option<Vec<String>> {
    let (first, rest) = path.split_first()?;
    let mut from = match first.as_str() {
        "crate" => Vec::new(),
        "self" => module.clone(),
        "super" => module[..module.len().checked_sub(1)?].to_vec(),
        name => {
            let child = [&module[..], &[name.to_owned()]].concat();
            return files
                .contains_key(&child)
                .then(|| [&child[..], rest].concat());
        }
    };
    for name in rest {
        match name.as_str() {
            "super" => drop(from.pop()),
            "self" => {}
            _ => from.push(name.clone()),
        }
    }
    Some(from)
}

fn imports_of(module: &Module, items: &[Item], files: &Crate) -> Imports {
    struct Uses<'a>(&'a Module, &'a Crate, Imports);
    impl Visit<'_> for Uses<'_> {
        fn visit_item_use(&mut self, item: &ItemUse) {
            self.tree(&mut Vec::new(), &item.tree);
            visit::visit_item_use(self, item);
        }
    }
    impl Uses<'_> {
        fn tree(&mut self, before: &mut Vec<String>, tree: &UseTree) {
            match tree {
                UseTree::Path(path) => {
                    before.push(path.ident.to_string());
                    self.tree(before, &path.tree);
                    before.pop();
                }
                UseTree::Group(group) => {
                    group.items.iter().for_each(|tree| self.tree(before, tree))
                }
                UseTree::Name(name) => self.add(before, &name.ident, &name.ident),
                UseTree::Rename(rename) => self.add(before, &rename.ident, &rename.rename),
                UseTree::Glob(_) => {}
            }
        }

        fn add(&mut self, before: &[String], name: &syn::Ident, brought: &syn::Ident) {
            let path = [before, &[name.to_string()]].concat();
            let brought = if brought == "self" {
                before.last().cloned()
            } else {
                Some(brought.to_string())
            };
            if let (Some(path), Some(brought)) = (absolute(self.0, &path, self.1), brought) {
                self.2.insert(brought, path);
            }
        }
    }
    let mut uses = Uses(module, files, Imports::new());
    items.iter().for_each(|item| uses.visit_item(item));
    uses.2
}

struct Scan<'a> {
    files: &'a Crate,
    imports: &'a Imports,
    found: Vec<(Vec<String>, usize)>,
}

impl Scan<'_> {
    fn items(&mut self, module: &Module, items: &[Item]) {
        for item in items {
            match item {
                Item::Mod(inner) => {
                    if let Some((_, items)) = &inner.content {
                        self.items(&[&module[..], &[inner.ident.to_string()]].concat(), items);
                    }
                }
                item => self.tokens(module, &[], item.to_token_stream()),
            }
        }
    }

    /// Adds every path among the tokens. Works on tokens, because the parser leaves a macro's arguments as tokens.
    /// `before` is the prefix of `use before::{...}`.
    fn tokens(&mut self, module: &Module, before: &[String], tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            at += 1;
            match token {
                TokenTree::Group(group) => self.tokens(module, &[], group.stream()),
                TokenTree::Ident(word) if word == "pub" => {
                    at += usize::from(matches!(tokens.get(at), Some(TokenTree::Group(_))));
                }
                TokenTree::Ident(word) if word == "as" => at += 1,
                TokenTree::Ident(word) => {
                    let follows = at > 1
                        && is_punct(&tokens[at - 2], ':')
                        && at > 2
                        && is_punct(&tokens[at - 3], ':');
                    let mut path = [before, &[word.to_string()]].concat();
                    let line = word.span().start().line;
                    let mut opened = !before.is_empty();
                    while is_colons(&tokens[at..]) {
                        opened = true;
                        match tokens.get(at + 2) {
                            Some(TokenTree::Ident(next)) => path.push(next.to_string()),
                            Some(TokenTree::Group(group))
                                if group.delimiter() == Delimiter::Brace =>
                            {
                                self.tokens(module, &path, group.stream());
                                opened = false;
                            }
                            _ => {
                                at += 2;
                                break;
                            }
                        }
                        at += 3;
                    }
                    if opened && !follows {
                        self.path(module, &path, line);
                    }
                }
                _ => {}
            }
        }
    }

    fn path(&mut self, module: &Module, path: &[String], line: usize) {
        let imported = || Some([&self.imports.get(&path[0])?[..], &path[1..]].concat());
        if let Some(path) = absolute(module, path, self.files).or_else(imported) {
            self.found.push((path, line));
        }
    }
}

fn is_punct(token: &TokenTree, sign: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == sign)
}

fn is_colons(tokens: &[TokenTree]) -> bool {
    matches!(tokens, [one, two, ..] if is_punct(one, ':') && is_punct(two, ':'))
}
