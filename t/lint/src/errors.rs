//! Reads the table of `src/error.rs`, for tests that compare the documentation with it. For each error the table
//! contains the name of the SQLSTATE, the message and the hint.

use std::collections::BTreeMap;

use proc_macro2::{Group, TokenStream, TokenTree};
use quote::ToTokens;
use syn::parse::{Parse, ParseStream};
use syn::{Attribute, Ident, Item, Token, token};

use crate::tree::Crate;

pub struct ErrorText {
    /// For example `ERRCODE_NULL_VALUE_NOT_ALLOWED`.
    pub code: String,
    /// The message, with an ellipsis for each value that is filled in.
    pub message: String,
    pub hint: String,
}

/// Returns the errors by the names of their variants, from the macro `errors!` in the module `error`.
pub fn errors(files: &Crate) -> Result<BTreeMap<String, ErrorText>, String> {
    let source = &files.get(["error".to_owned()].as_slice());
    let table = source.and_then(|source| {
        source.items.iter().find_map(|item| match item {
            Item::Macro(item) if item.mac.path.is_ident("errors") => Some(&item.mac),
            _ => None,
        })
    });
    let table = table.ok_or("there is no errors! in src/error.rs")?;
    let table: Table = table.parse_body().map_err(|error| error.to_string())?;
    Ok(table.0)
}

struct Table(BTreeMap<String, ErrorText>);

/// Parses `Variant(field: Type) => ERRCODE_X { message "..."; hint "..."; }`.
impl Parse for Table {
    fn parse(input: ParseStream) -> syn::Result<Table> {
        let mut errors = BTreeMap::new();
        while !input.is_empty() {
            input.call(Attribute::parse_outer)?;
            let variant: Ident = input.parse()?;
            if input.peek(token::Paren) || input.peek(token::Brace) {
                input.parse::<Group>()?;
            }
            input.parse::<Token![=>]>()?;
            let code: Ident = input.parse()?;
            let words = input.parse::<Group>()?.stream();
            let of = |label: &str| {
                let missing =
                    || syn::Error::new(variant.span(), format!("{variant} has no {label}"));
                text_after(&words, label).ok_or_else(missing)
            };
            let text = ErrorText {
                code: code.to_string(),
                message: of("message")?,
                hint: of("hint")?,
            };
            errors.insert(variant.to_string(), text);
        }
        Ok(Table(errors))
    }
}

/// Returns the first text after the label that consists of more than a placeholder.
fn text_after(words: &TokenStream, label: &str) -> Option<String> {
    let mut tokens = words.clone().into_iter();
    tokens.find(|token| matches!(token, TokenTree::Ident(word) if word == label))?;
    first_text(tokens)
}

fn first_text(mut tokens: impl Iterator<Item = TokenTree>) -> Option<String> {
    tokens.find_map(|token| match token {
        TokenTree::Group(group) => first_text(group.stream().into_iter()),
        token => text(&token).filter(|text| text != "…"),
    })
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
