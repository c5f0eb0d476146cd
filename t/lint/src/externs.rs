//! The functions that SQL calls, as Rust writes them.

use quote::ToTokens;
use syn::{FnArg, Item, ItemFn, Pat, ReturnType, Type};

use crate::tree::Crate;

/// A `#[pg_extern] fn`. Types are without blanks and without the path before them: `Option<Text>`.
pub struct Extern {
    pub name: String,
    pub path: String,
    pub arguments: Vec<(String, String)>,
    pub result: String,
}

/// pgrx hands the call itself to an argument of this type; SQL does not see it.
const CALL: &str = "FunctionCallInfo";

pub fn externs(files: &Crate) -> Vec<Extern> {
    let functions = files.values().flat_map(|source| {
        source.items.iter().filter_map(|item| match item {
            Item::Fn(function) if is_extern(function) => Some(of(&source.path, function)),
            _ => None,
        })
    });
    functions.collect()
}

fn is_extern(function: &ItemFn) -> bool {
    let last =
        |attribute: &syn::Attribute| Some(attribute.path().segments.last()?.ident == "pg_extern");
    function
        .attrs
        .iter()
        .any(|attribute| last(attribute) == Some(true))
}

fn of(path: &str, function: &ItemFn) -> Extern {
    let arguments = function
        .sig
        .inputs
        .iter()
        .filter_map(|argument| match argument {
            FnArg::Typed(typed) => Some((name_of(&typed.pat), plain(&typed.ty))),
            FnArg::Receiver(_) => None,
        });
    Extern {
        name: function.sig.ident.to_string(),
        path: path.to_owned(),
        arguments: arguments.filter(|(_, kind)| kind != CALL).collect(),
        result: match &function.sig.output {
            ReturnType::Default => "()".to_owned(),
            ReturnType::Type(_, kind) => plain(kind),
        },
    }
}

/// Without what only Rust wants: `mut`, `r#`, the underscore of an argument that is not used.
fn name_of(pattern: &Pat) -> String {
    let name = match pattern {
        Pat::Ident(name) => name.ident.to_string(),
        other => other.to_token_stream().to_string(),
    };
    name.trim_start_matches("r#").trim_matches('_').to_owned()
}

fn plain(kind: &Type) -> String {
    let text: String = kind
        .to_token_stream()
        .to_string()
        .split_whitespace()
        .collect();
    let mut plain = String::new();
    for part in text.split_inclusive(['<', '>', ',', '(', ')', '[', ']', '&']) {
        plain.push_str(part.rsplit("::").next().unwrap_or(part));
    }
    plain
}
