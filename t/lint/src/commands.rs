//! Finds code that compares the name of a Redis command or lists variants of `Command` to classify commands. Both
//! belong in the table of commands in `crates/resp`.

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Arm, BinOp, Expr, ExprBinary, ExprMacro, ExprMatch, ExprMethodCall, Member, Pat};

use crate::tree::Crate;

/// The number of variants of `Command` in one pattern that counts as a list.
const LIST: usize = 3;
/// Methods that are allowed on a name, because they only prepare it for display.
const SHOWS: &[&str] = &["as_bytes", "to_ascii_uppercase"];

/// Returns the module and the line of each finding.
pub fn findings(files: &Crate) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for (module, source) in files {
        let mut scan = Scan(Vec::new());
        source.items.iter().for_each(|item| scan.visit_item(item));
        let found = scan.0.into_iter();
        all.extend(found.map(|what| (module.join("::"), what)));
    }
    all
}

struct Scan(Vec<String>);

impl Scan {
    fn found(&mut self, what: &str, at: &impl Spanned) {
        let line = at.span().start().line;
        self.0.push(format!("line {line}: {what}"));
    }
}

const BY_NAME: &str = "decides by the name of a command";
const LISTS: &str = "lists variants of Command";

impl<'ast> Visit<'ast> for Scan {
    fn visit_expr_match(&mut self, all: &'ast ExprMatch) {
        if is_name(&all.expr) {
            self.found(BY_NAME, all);
        }
        let sorts = all.arms.iter().all(|arm| is_plain(&arm.body));
        let variants: usize = all.arms.iter().map(variants_of).sum();
        if sorts && variants >= LIST {
            self.found(LISTS, all);
        }
        visit::visit_expr_match(self, all);
    }

    fn visit_pat(&mut self, pattern: &'ast Pat) {
        if matches!(pattern, Pat::Or(_)) && variants(pattern.to_token_stream()) >= LIST {
            self.found(LISTS, pattern);
        }
        visit::visit_pat(self, pattern);
    }

    fn visit_expr_binary(&mut self, pair: &'ast ExprBinary) {
        let compares = matches!(pair.op, BinOp::Eq(_) | BinOp::Ne(_));
        if compares && (is_name(&pair.left) || is_name(&pair.right)) {
            self.found(BY_NAME, pair);
        }
        visit::visit_expr_binary(self, pair);
    }

    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        let shows = SHOWS.iter().any(|method| call.method == method);
        let looks_up = call.method == "contains" && call.args.iter().any(is_name);
        if is_name(&call.receiver) && !shows || looks_up {
            self.found(BY_NAME, call);
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_macro(&mut self, call: &'ast ExprMacro) {
        if call.mac.path.is_ident("matches") {
            if variants(call.mac.tokens.clone()) >= LIST {
                self.found(LISTS, call);
            }
            let before_comma = call.mac.tokens.clone().into_iter();
            let judged: TokenStream = before_comma
                .take_while(
                    |token| !matches!(token, TokenTree::Punct(sign) if sign.as_char() == ','),
                )
                .collect();
            if syn::parse2::<Expr>(judged).is_ok_and(|judged| is_name(&judged)) {
                self.found(BY_NAME, call);
            }
        }
        visit::visit_expr_macro(self, call);
    }
}

/// Returns whether the expression ends in `entry.name` or `entry.last_name()`.
fn is_name(expression: &Expr) -> bool {
    let is_entry = |base: &Expr| match base {
        Expr::Path(path) => path.path.is_ident("entry"),
        Expr::Field(field) => matches!(&field.member, Member::Named(name) if name == "entry"),
        _ => false,
    };
    match expression {
        Expr::Reference(inner) => is_name(&inner.expr),
        Expr::Paren(inner) => is_name(&inner.expr),
        Expr::Field(field) => {
            matches!(&field.member, Member::Named(name) if name == "name") && is_entry(&field.base)
        }
        Expr::MethodCall(call) => call.method == "last_name" && is_entry(&call.receiver),
        _ => false,
    }
}

/// Returns whether an arm consists only of a value.
fn is_plain(body: &Expr) -> bool {
    match body {
        Expr::Block(block) => match &block.block.stmts[..] {
            [syn::Stmt::Expr(inner, None)] => is_plain(inner),
            _ => false,
        },
        Expr::Lit(_) | Expr::Path(_) | Expr::Binary(_) | Expr::Macro(_) => true,
        _ => false,
    }
}

fn variants_of(arm: &Arm) -> usize {
    variants(arm.pat.to_token_stream())
}

/// Counts the occurrences of `Command::`.
fn variants(tokens: TokenStream) -> usize {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let inside: usize = tokens
        .iter()
        .map(|token| match token {
            TokenTree::Group(group) => variants(group.stream()),
            _ => 0,
        })
        .sum();
    let here = tokens.windows(2).filter(|pair| {
        matches!(pair, [TokenTree::Ident(name), TokenTree::Punct(sign)] if name == "Command" && sign.as_char() == ':')
    });
    inside + here.count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::load;

    fn count(body: &str) -> usize {
        let text = format!("fn f() {{ {body} }}");
        let read = |path: &str| (path == "src/lib.rs").then(|| text.clone());
        findings(&load("src/lib.rs", &read).unwrap()).len()
    }

    #[test]
    fn decisions_by_names_and_lists_of_variants_are_found() {
        for wrong in [
            r#"match entry.name { "a" => g(), _ => h() }"#,
            r#"match command.entry.last_name() { "a" => g(), _ => h() }"#,
            r#"let is = matches!(entry.name, "a" | "b");"#,
            r#"let is = entry.name == "a";"#,
            r#"let is = "a" != command.entry.name;"#,
            r#"let is = entry.name.starts_with("a");"#,
            r#"let is = LIST.contains(&entry.name);"#,
            "let is = matches!(command, Command::A | Command::B { .. } | Command::C);",
            "match command { Command::A | Command::B | Command::C => g(), _ => h() }",
            "match command { Command::A => true, Command::B => true, Command::C => false, _ => false }",
        ] {
            assert_eq!(count(wrong), 1, "{wrong}");
        }
        for right in [
            "refuse(entry.name, out)",
            "note(command.entry.name.as_bytes())",
            "let is = matches!(command, Command::A | Command::B);",
            "match command { Command::A => g(), Command::B => h(), Command::C => i(), _ => j() }",
            r#"match session.name { "a" => true, _ => false }"#,
        ] {
            assert_eq!(count(right), 0, "{right}");
        }
    }
}
