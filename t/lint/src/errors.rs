//! What `src/error` says of each of its errors: the name of the SQLSTATE, the message, the hint.

use std::collections::BTreeMap;

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::visit::{self, Visit};
use syn::{Arm, ImplItemFn, Item, Pat};

use crate::tree::Crate;

pub struct ErrorText {
    /// `ERRCODE_NULL_VALUE_NOT_ALLOWED`
    pub code: String,
    /// What is filled in stands as an ellipsis.
    pub message: String,
    pub hint: Option<String>,
}

/// By the names of the variants of the enum `Error` in the module `error`; an error where one has no code or no message.
pub fn errors(files: &Crate) -> Result<BTreeMap<String, ErrorText>, String> {
    let of_errors = files
        .iter()
        .filter(|(module, _)| module.first().is_some_and(|name| name == "error"));
    let items: Vec<&Item> = of_errors.flat_map(|(_, source)| &source.items).collect();
    let mut arms = Arms::default();
    items.iter().for_each(|item| arms.visit_item(item));
    let variants = items.iter().find_map(|item| match item {
        Item::Enum(item) if item.ident == "Error" => Some(&item.variants),
        _ => None,
    });
    let mut errors = BTreeMap::new();
    for variant in variants.ok_or("there is no enum Error")? {
        let name = variant.ident.to_string();
        let of = |function: &str| arms.behind.get(&(function.to_owned(), name.clone()));
        let code = of("code")
            .and_then(|arm| first(arm, &code_name))
            .ok_or(format!("{name} has no code"))?;
        let message = of("message")
            .and_then(|arm| first(arm, &text))
            .ok_or(format!("{name} has no message"))?;
        let hint = of("hint").and_then(|arm| first(arm, &text));
        errors.insert(
            name,
            ErrorText {
                code,
                message,
                hint,
            },
        );
    }
    Ok(errors)
}

/// What stands behind the arrow, by function and variant.
#[derive(Default)]
struct Arms {
    function: String,
    behind: BTreeMap<(String, String), TokenStream>,
}

impl Visit<'_> for Arms {
    fn visit_impl_item_fn(&mut self, function: &ImplItemFn) {
        self.function = function.sig.ident.to_string();
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_arm(&mut self, arm: &Arm) {
        for variant in variants(&arm.pat) {
            self.behind
                .insert((self.function.clone(), variant), arm.body.to_token_stream());
        }
    }
}

fn variants(pattern: &Pat) -> Vec<String> {
    let path = match pattern {
        Pat::Or(any) => return any.cases.iter().flat_map(variants).collect(),
        Pat::Path(path) => &path.path,
        Pat::TupleStruct(tuple) => &tuple.path,
        Pat::Struct(fields) => &fields.path,
        _ => return Vec::new(),
    };
    path.segments
        .last()
        .map(|name| name.ident.to_string())
        .into_iter()
        .collect()
}

fn first(tokens: &TokenStream, want: &dyn Fn(&TokenTree) -> Option<String>) -> Option<String> {
    tokens.clone().into_iter().find_map(|token| match &token {
        TokenTree::Group(group) => first(&group.stream(), want),
        token => want(token),
    })
}

fn code_name(token: &TokenTree) -> Option<String> {
    Some(token.to_string()).filter(|name| name.starts_with("ERRCODE_"))
}

fn text(token: &TokenTree) -> Option<String> {
    let literal = syn::parse2::<syn::LitStr>(token.to_token_stream())
        .ok()?
        .value();
    let mut parts = literal.split('{');
    let mut text = parts.next()?.to_owned();
    for part in parts {
        text.push('…');
        text.push_str(part.split_once('}')?.1);
    }
    Some(text)
}
