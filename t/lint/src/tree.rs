//! Lists the files of a crate by following its `mod` lines from the root, except modules that are compiled only for
//! tests.

use std::collections::BTreeMap;

use proc_macro2::{TokenStream, TokenTree};
use syn::{Attribute, Item};

/// The path of a module, such as `["cache", "fetch"]`. The path of the root is empty.
pub type Module = Vec<String>;

pub struct Source {
    /// The path from the checkout's root: `src/cache/fetch.rs`.
    pub path: String,
    pub items: Vec<Item>,
}

pub type Crate = BTreeMap<Module, Source>;

/// Reads a crate from its root file. `read` returns a file's text, so that tests can invent a crate.
pub fn load(root: &str, read: &dyn Fn(&str) -> Option<String>) -> Result<Crate, String> {
    let (folder, _) = root.rsplit_once('/').ok_or("a root lies in a folder")?;
    let mut files = Crate::new();
    let mut waiting = vec![(Module::new(), vec![root.to_owned()])];
    while let Some((module, places)) = waiting.pop() {
        let found = places.iter().find_map(|path| Some((path, read(path)?)));
        let (path, text) = found.ok_or_else(|| format!("there is none of {places:?}"))?;
        let mut file = syn::parse_file(&text).map_err(|error| format!("{path}: {error}"))?;
        remove_tests(&mut file.items);
        for item in &file.items {
            if let Item::Mod(child) = item
                && child.content.is_none()
            {
                let module = [&module[..], &[child.ident.to_string()]].concat();
                let stem = format!("{folder}/{}", module.join("/"));
                waiting.push((module, vec![format!("{stem}.rs"), format!("{stem}/mod.rs")]));
            }
        }
        let (path, items) = (path.clone(), file.items);
        files.insert(module, Source { path, items });
    }
    Ok(files)
}

fn remove_tests(items: &mut Vec<Item>) {
    items.retain(|item| !attributes(item).iter().any(is_of_tests));
    for item in items {
        if let Item::Mod(inner) = item
            && let Some((_, items)) = &mut inner.content
        {
            remove_tests(items);
        }
    }
}

/// Returns whether the attribute is one of `#[cfg(test)]`, `#[cfg(any(test, feature = "validate"))]`, `#[test]`.
fn is_of_tests(attribute: &Attribute) -> bool {
    if attribute.path().is_ident("test") {
        return true;
    }
    let syn::Meta::List(list) = &attribute.meta else {
        return false;
    };
    attribute.path().is_ident("cfg") && has(&list.tokens, "test") && !has(&list.tokens, "not")
}

fn has(tokens: &TokenStream, word: &str) -> bool {
    tokens.clone().into_iter().any(|token| match token {
        TokenTree::Ident(ident) => ident == word,
        TokenTree::Group(group) => has(&group.stream(), word),
        _ => false,
    })
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}
