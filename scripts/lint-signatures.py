#!/usr/bin/env -S python3 -B
"""Guards the seam between SQL and Rust: Postgres calls a C function with whatever its SQL declaration
says, so a wrong list of arguments there is undefined behaviour here.

Every declaration in sql/pgcache--<current>.sql must have a `#[pg_extern] fn` with the same arguments in
the same order (name and type), the same result, and the right idea of NULL; and the other way round.
So must those of older versions and of upgrade scripts: a database may be at an older version than the
library, until ALTER EXTENSION UPDATE. Trigger functions are plain C functions: of them only the existence
is checked.
"""

import re
import sys
from dataclasses import dataclass

from rust_source import ROOT, closing, code_only, line_at, name_of, product_files

# What a Rust type is in SQL. A type that is not here is a finding: add it with its counterparts.
SQL_OF_RUST = {
    "Text": {"text"},
    "Json": {"jsonb"},
    "Bytes": {"bytea"},
    "bool": {"boolean"},
    "i16": {"smallint"},
    "i32": {"integer"},
    "i64": {"bigint"},
    "f64": {"double precision"},
    "Interval": {"interval"},
    "TimestampWithTimeZone": {"timestamptz"},
    "Oid": {"oid", "regclass", "regtype", "regproc", "regrole"},
    "()": {"void"},
}
# pgrx hands the call itself to an argument of this type; SQL does not see it.
CALL = "FunctionCallInfo"
SAME_IN_SQL = {
    "bool": "boolean",
    "int": "integer",
    "int4": "integer",
    "int8": "bigint",
    "int2": "smallint",
    "timestamp with time zone": "timestamptz",
    "float8": "double precision",
}


@dataclass
class Declared:
    """A function as SQL declares it."""

    name: str
    symbol: str
    arguments: list[tuple[str, str]]
    columns: int
    result: str
    is_set: bool
    strict: bool
    line: int


@dataclass
class Written:
    """A function as Rust writes it."""

    name: str
    where: str
    arguments: list[tuple[str, str]]
    result: str


# --- SQL -----------------------------------------------------------------------------------------

FUNCTION = re.compile(r"\bCREATE\s+(?:OR\s+REPLACE\s+)?FUNCTION\s+([\w.@]+)\s*\(", re.I)
LIBRARY = re.compile(r"\bAS\s+'MODULE_PATHNAME'\s*(?:,\s*'(\w+)')?", re.I)


def split_list(text: str) -> list[str]:
    """Splits at commas that stand outside brackets and quotes."""
    parts, depth, quoted = [""], 0, False
    for character in text:
        quoted ^= character == "'"
        if not quoted:
            depth += (character in "([{<") - (character in ")]}>")
        if character == "," and depth == 0 and not quoted:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


def sql_type(text: str) -> str:
    text = re.sub(r"\s+", " ", text.strip().lower()).removeprefix("pg_catalog.")
    base = text.removesuffix("[]").strip()
    return SAME_IN_SQL.get(base, base) + ("[]" if text.endswith("[]") else "")


def sql_argument(text: str) -> tuple[str, str, str]:
    """(mode, name, type) of one argument."""
    text = re.split(r"\s+DEFAULT\s+|\s*:?=\s*", text, maxsplit=1, flags=re.I)[0]
    mode, rest = "IN", text
    if found := re.match(r"(IN|OUT|INOUT|VARIADIC)\s+", text, re.I):
        mode, rest = found.group(1).upper(), text[found.end() :]
    name, _, kind = rest.strip().partition(" ")
    return mode, name, sql_type(kind)


def declared_functions(sql: str) -> list[Declared]:
    sql = re.sub(r"--[^\n]*", lambda comment: " " * len(comment.group()), sql)
    functions = []
    for found in FUNCTION.finditer(sql):
        end = closing(sql, found.end() - 1)
        statement = sql[end : sql.index(";", end)]
        library = LIBRARY.search(statement)
        if not library:
            continue
        arguments = [sql_argument(text) for text in split_list(sql[found.end() : end - 1])]
        returns = re.match(r"\s*RETURNS\s+(SETOF\s+|TABLE\s*)?(.*?)\s*\bAS\b", statement, re.I | re.S)
        result = returns.group(2) if returns else "record"
        is_table = bool(returns and (returns.group(1) or "").upper().startswith("TABLE"))
        outs = [argument for argument in arguments if argument[0] in ("OUT", "INOUT")]
        functions.append(
            Declared(
                name=found.group(1),
                symbol=library.group(1) or found.group(1).rpartition(".")[2],
                arguments=[(name, kind) for mode, name, kind in arguments if mode != "OUT"],
                columns=len(split_list(result.strip()[1:-1])) if is_table else len(outs),
                result="record" if is_table else sql_type(result),
                is_set=bool(returns and returns.group(1)),
                strict=bool(re.search(r"\bSTRICT\b|RETURNS\s+NULL\s+ON\s+NULL", statement, re.I)),
                line=line_at(sql, found.start()),
            )
        )
    return functions


# --- Rust ----------------------------------------------------------------------------------------

EXTERN = re.compile(r"#\[pg_extern\b[^\]]*\]\s*(?:#\[[^\]]*\]\s*)*(?:pub(?:\([^)]*\))?\s+)?fn\s+(\w+)\s*(?:<[^>]*>\s*)?\(")
SYMBOL = re.compile(r"#\[unsafe\(no_mangle\)\]\s*(?:#\[[^\]]*\]\s*)*pub\s+(?:unsafe\s+)?extern\s+\"[^\"]*\"\s+fn\s+(\w+)")


def rust_type(text: str) -> str:
    text = re.sub(r"\s+", "", text)
    return re.sub(r"(?:\w+::)+", "", text)


def inside(text: str, wrapper: str) -> str | None:
    """`T` of `Wrapper<T>` or of `Wrapper<T,E>`."""
    if text.startswith(wrapper + "<") and text.endswith(">"):
        return split_list(text[len(wrapper) + 1 : -1])[0]
    return None


def written_functions() -> tuple[dict[str, Written], set[str]]:
    functions, symbols = {}, set()
    for file in product_files():
        source = file.read_text()
        symbols.update(SYMBOL.findall(source))
        code = code_only(source)
        for found in EXTERN.finditer(code):
            end = closing(code, found.end() - 1)
            arguments = []
            for text in split_list(code[found.end() : end - 1]):
                name, _, kind = text.partition(":")
                if rust_type(kind) == CALL:
                    continue
                name = name.strip().removeprefix("mut ").removeprefix("r#").strip("_")
                arguments.append((name, rust_type(kind)))
            result = code[end : code.index("{", end)].strip().removeprefix("->")
            functions[found.group(1)] = Written(
                name=found.group(1),
                where=f"{name_of(file)}:{line_at(code, found.start())}",
                arguments=arguments,
                result=rust_type(result) or "()",
            )
    return functions, symbols


# --- the comparison ------------------------------------------------------------------------------


def same_type(rust: str, sql: str) -> bool:
    if element := inside(rust, "ArrayOf"):
        return sql.endswith("[]") and same_type(element, sql[:-2])
    return sql in SQL_OF_RUST.get(rust, ())


def compare_arguments(declared: Declared, written: Written):
    if len(declared.arguments) != len(written.arguments):
        yield f"SQL has {len(declared.arguments)} arguments, Rust {len(written.arguments)}"
        return
    for (name, kind), (rust_name, rust_kind) in zip(declared.arguments, written.arguments):
        if name != rust_name:
            yield f"argument {name} is called {rust_name} in Rust"
        bare = inside(rust_kind, "Option")
        if not same_type(bare or rust_kind, kind):
            yield f"argument {name} is {kind} in SQL and {rust_kind} in Rust"
        if not bare and not declared.strict:
            yield f"argument {name} may be NULL in SQL; Rust needs Option<{rust_kind}>"


def compare_results(declared: Declared, written: Written):
    rust = written.result
    rust = inside(rust, "Answer") or inside(rust, "Result") or rust
    rust = inside(rust, "Option") or rust
    rows, record = inside(rust, "Rows") or inside(rust, "Stream"), inside(rust, "OutRow")
    if inside(rust, "QueryStream"):
        # The query names the columns, and QueryStream itself compares them with its own at run time.
        if not (declared.is_set and declared.columns == 0):
            yield f"SQL declares {declared.columns} columns, Rust leaves them to the query"
    elif declared.is_set or rows:
        if not (declared.is_set and rows == str(declared.columns)):
            yield f"SQL returns a set of {declared.columns} columns, Rust {rust}"
    elif declared.result == "record" or record:
        if record != str(declared.columns):
            yield f"SQL returns {declared.columns} columns, Rust {rust}"
    elif not same_type(rust, declared.result):
        yield f"SQL returns {declared.result}, Rust {rust}"


def findings_of(path: str, declared: list[Declared], written: dict[str, Written], symbols: set[str]):
    for function in declared:
        name = function.symbol.removesuffix("_wrapper")
        place = f"{path}:{function.line}: {function.name}"
        if function.result == "trigger":
            for symbol in (function.symbol, f"pg_finfo_{function.symbol}"):
                if symbol not in symbols:
                    yield f"{place}: no C function {symbol} in Rust"
        elif name not in written or function.symbol == name:
            yield f"{place}: no #[pg_extern] fn for the symbol {function.symbol}"
        else:
            rust = written[name]
            for what in [*compare_arguments(function, rust), *compare_results(function, rust)]:
                yield f"{place} ({rust.where}): {what}"


def undeclared(path: str, declared: list[Declared], written: dict[str, Written]):
    seen = {function.symbol.removesuffix("_wrapper") for function in declared}
    for name in sorted(written.keys() - seen):
        yield f"{written[name].where}: {name} has no declaration in {path}"


def main() -> int:
    control = (ROOT / "pgcache.control").read_text()
    version = re.search(r"^default_version\s*=\s*'([^']+)'", control, re.M).group(1)
    current = f"sql/pgcache--{version}.sql"
    written, symbols = written_functions()
    scripts = {name_of(file): declared_functions(file.read_text()) for file in sorted(ROOT.glob("sql/pgcache--*.sql"))}
    findings = [finding for path, declared in scripts.items() for finding in findings_of(path, declared, written, symbols)]
    findings += undeclared(current, scripts.get(current, []), written)
    if not scripts.get(current):
        findings.append(f"{current}: no function was found")
    count = sum(map(len, scripts.values()))
    print("\n".join(findings) or f"signatures: {count} declarations in {len(scripts)} scripts agree with Rust")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
