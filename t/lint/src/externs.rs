//! Reads the Rust declarations of the functions that SQL calls, for a test that compares them with the catalog.

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{
    Attribute, Block, FnArg, Ident, Item, ItemFn, Pat, PatType, ReturnType, Token, Type, bracketed,
    parenthesized,
};

use crate::tree::Crate;

/// A `#[pg_extern] fn`. Its types are written without blanks and without paths: `Option<Text>`.
pub struct Extern {
    pub name: String,
    pub path: String,
    pub arguments: Vec<(String, String)>,
    pub result: String,
}

/// The type of the argument in which pgrx passes the call itself. SQL does not declare this argument.
const CALL: &str = "FunctionCallInfo";

pub fn externs(files: &Crate) -> Vec<Extern> {
    let functions = files.values().flat_map(|source| {
        source.items.iter().flat_map(|item| match item {
            Item::Fn(function) if is_extern(function) => vec![of(&source.path, function)],
            Item::Macro(item) if item.mac.path.is_ident("functions") => {
                let families = item.mac.parse_body::<Families>().map(|families| families.0);
                let families = families.unwrap_or_default();
                families
                    .iter()
                    .flat_map(|family| family.of(&source.path))
                    .collect()
            }
            _ => Vec::new(),
        })
    });
    functions.collect()
}

/// The declarations in `functions!`: `[...] fn name<Type>, name<Type>: fn(arguments) -> result { ... }`, in which `V`
/// is the type beside the name.
struct Families(Vec<Family>);

struct Family {
    names: Vec<(Ident, Option<Ident>)>,
    arguments: Punctuated<PatType, Token![,]>,
    result: Type,
}

impl Parse for Families {
    fn parse(input: ParseStream) -> syn::Result<Families> {
        let mut families = Vec::new();
        while !input.is_empty() {
            families.push(input.parse()?);
        }
        Ok(Families(families))
    }
}

impl Parse for Family {
    fn parse(input: ParseStream) -> syn::Result<Family> {
        input.call(Attribute::parse_outer)?;
        let route;
        bracketed!(route in input);
        route.parse::<TokenStream>()?;
        input.parse::<Token![fn]>()?;
        let mut names = Vec::new();
        while !input.peek(Token![:]) {
            let name = input.parse()?;
            let value = match input.parse::<Option<Token![<]>>()? {
                None => None,
                Some(_) => {
                    let value = input.parse()?;
                    input.parse::<Token![>]>()?;
                    Some(value)
                }
            };
            names.push((name, value));
            input.parse::<Option<Token![,]>>()?;
        }
        input.parse::<Token![:]>()?;
        input.parse::<Token![fn]>()?;
        let arguments;
        parenthesized!(arguments in input);
        let arguments = arguments.parse_terminated(|one| one.call(argument), Token![,])?;
        input.parse::<Token![->]>()?;
        let result = input.parse()?;
        input.parse::<Block>()?;
        Ok(Family {
            names,
            arguments,
            result,
        })
    }
}

fn argument(input: ParseStream) -> syn::Result<PatType> {
    match input.parse()? {
        FnArg::Typed(typed) => Ok(typed),
        FnArg::Receiver(receiver) => Err(syn::Error::new_spanned(receiver, "no argument of SQL")),
    }
}

impl Family {
    fn of(&self, path: &str) -> Vec<Extern> {
        let one = |(name, value): &(Ident, Option<Ident>)| {
            let kind = |kind: &Type| {
                let text = plain(kind);
                match value {
                    None => text,
                    Some(value) => in_place_of_v(&text, &value.to_string()),
                }
            };
            let arguments = self.arguments.iter();
            Extern {
                name: name.to_string(),
                path: path.to_owned(),
                arguments: arguments
                    .map(|argument| (name_of(&argument.pat), kind(&argument.ty)))
                    .collect(),
                result: kind(&self.result),
            }
        };
        self.names.iter().map(one).collect()
    }
}

/// Replaces `V` in a type with another type.
fn in_place_of_v(kind: &str, value: &str) -> String {
    let is_end = |c: char| "<>,()[]&".contains(c);
    let parts = kind.split_inclusive(is_end).map(|part| {
        let word = part.trim_end_matches(is_end);
        match word == "V" {
            true => part.replacen('V', value, 1),
            false => part.to_owned(),
        }
    });
    parts.collect()
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

/// Returns the name of an argument without the parts that only Rust needs: `mut`, `r#`, the underscore of an unused
/// argument.
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
