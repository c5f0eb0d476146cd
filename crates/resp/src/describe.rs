//! Writes rows of the command table as replies to COMMAND, COMMAND INFO and COMMAND DOCS.

use crate::reply::Writer;
use crate::table::{Entry, TABLE, category, flag};

/// Writes a command's row as COMMAND INFO does: name, arity, flags, keys, categories, tips, key specifications,
/// subcommands. Tips and key specifications stay empty, because only clients of a cluster need them.
pub fn describe(entry: &Entry, replies: &mut Writer) {
    replies.array(10);
    replies.bulk(entry.name.as_bytes());
    replies.integer(i64::from(entry.arity));
    statuses(flags(entry), replies);
    for place in [entry.keys.first, entry.keys.last, entry.keys.step] {
        replies.integer(i64::from(place));
    }
    statuses(categories(entry), replies);
    replies.set(0);
    replies.set(0);
    replies.array(entry.subcommands.len());
    for inner in entry.subcommands {
        describe(inner, replies);
    }
}

/// Writes all commands, as COMMAND does.
pub fn describe_all(replies: &mut Writer) {
    replies.array(TABLE.len());
    for entry in TABLE {
        describe(entry, replies);
    }
}

/// Writes a command as COMMAND DOCS does: name, since, group, subcommands.
pub fn document(entry: &Entry, replies: &mut Writer) {
    replies.bulk(entry.name.as_bytes());
    replies.map(2 + usize::from(!entry.subcommands.is_empty()));
    replies.bulk(b"since");
    replies.bulk(entry.since.as_bytes());
    replies.bulk(b"group");
    replies.bulk(entry.group.as_bytes());
    if !entry.subcommands.is_empty() {
        replies.bulk(b"subcommands");
        replies.map(entry.subcommands.len());
        for inner in entry.subcommands {
            document(inner, replies);
        }
    }
}

fn flags(entry: &Entry) -> impl Iterator<Item = &'static str> + Clone {
    let flags = entry.flags;
    flag::NAMES
        .into_iter()
        .enumerate()
        .filter_map(move |(bit, name)| (flags >> bit & 1 == 1).then_some(name))
}

/// Returns the command's categories in the table, and the categories that Redis derives from its flags.
fn categories(entry: &Entry) -> impl Iterator<Item = &'static str> + Clone {
    let has = |one: u32| entry.flags & one != 0;
    let categories = entry.categories;
    let admin = has(flag::ADMIN);
    let derived = [
        (has(flag::WRITE), "@write"),
        (has(flag::READONLY), "@read"),
        (admin, "@admin"),
        (admin, "@dangerous"),
        (has(flag::PUBSUB), "@pubsub"),
        (has(flag::BLOCKING), "@blocking"),
        (has(flag::FAST), "@fast"),
        (!has(flag::FAST), "@slow"),
    ];
    let own = category::NAMES
        .into_iter()
        .enumerate()
        .filter_map(move |(bit, name)| (categories >> bit & 1 == 1).then_some(name));
    own.chain(
        derived
            .into_iter()
            .filter_map(|(holds, name)| holds.then_some(name)),
    )
}

/// Returns whether a command belongs to an ACL category, given without its `@`.
pub fn is_of_category(entry: &Entry, name: &[u8]) -> bool {
    categories(entry).any(|category| {
        let category = category.trim_start_matches('@').as_bytes();
        category.eq_ignore_ascii_case(name)
    })
}

fn statuses(names: impl Iterator<Item = &'static str> + Clone, replies: &mut Writer) {
    replies.set(names.clone().count());
    for name in names {
        replies.simple(name);
    }
}
