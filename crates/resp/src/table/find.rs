//! Finds a command by its name, in a hash table that is built at compile time. A lookup takes one hash and usually one
//! comparison.

use super::command_rows::TABLE;
use super::row_type::Entry;

const PLACES: usize = 512;
const LONGEST_NAME: usize = 16;

/// Hashes a name regardless of case.
const fn hash(name: &[u8]) -> usize {
    let mut state: u32 = 0x811c_9dc5;
    let mut at = 0;
    while at < name.len() {
        state = (state ^ (name[at] | 0x20) as u32).wrapping_mul(0x0100_0193);
        at += 1;
    }
    ((state ^ state >> 15) as usize) % PLACES
}

/// The hash table. An element holds the index of a row plus one, or 0 if it is empty. A row's element is at the hash of
/// its name, or is the next element that was free.
static INDEX: [u8; PLACES] = {
    let mut places = [0; PLACES];
    let mut row = 0;
    while row < TABLE.len() {
        let mut place = hash(TABLE[row].name.as_bytes());
        while places[place] != 0 {
            place = (place + 1) % PLACES;
        }
        row += 1;
        places[place] = row as u8;
    }
    places
};

/// Returns the index of the row of the command with this name, in lower or upper case; None if no command has the name.
pub(crate) fn row(name: &[u8]) -> Option<usize> {
    if name.len() > LONGEST_NAME {
        return None;
    }
    let mut place = hash(name);
    loop {
        let row = usize::from(*INDEX.get(place)?).checked_sub(1)?;
        if TABLE.get(row)?.name.as_bytes().eq_ignore_ascii_case(name) {
            return Some(row);
        }
        place = (place + 1) % PLACES;
    }
}

/// Returns the command with this name, in lower or upper case; None if no command has the name.
pub fn find(name: &[u8]) -> Option<&'static Entry> {
    TABLE.get(row(name)?)
}

/// Returns a command by its name, or a subcommand by `command|subcommand`.
pub fn named(name: &[u8]) -> Option<&'static Entry> {
    let mut parts = name.splitn(2, |&byte| byte == b'|');
    let entry = find(parts.next().unwrap_or_default())?;
    match parts.next() {
        None => Some(entry),
        Some(inner) => entry.subcommand(inner),
    }
}

/// Returns the name of a command as it is in the table; for a subcommand, both parts. Returns `unknown` for any other
/// name, which may be any input of a client.
pub fn known_name(name: &[u8]) -> &'static str {
    named(name).map_or("unknown", |entry| entry.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_found_by_its_name_and_no_other() {
        for entry in TABLE {
            let capitals = entry.name.to_ascii_uppercase();
            assert!(
                std::ptr::eq(find(capitals.as_bytes()).unwrap(), entry),
                "{}",
                entry.name
            );
            assert!(entry.name.len() <= LONGEST_NAME);
            assert!(find(format!("{}x", entry.name).as_bytes()).is_none());
            for inner in entry.subcommands {
                assert!(std::ptr::eq(
                    entry.subcommand(inner.last_name().as_bytes()).unwrap(),
                    inner
                ));
            }
        }
        assert!(TABLE.len() < 256 && find(b"").is_none() && find(b"lpush").is_none());
        // A letter and a control character that differ only in the case bit are not equal.
        assert!(find(b"GE\x14").is_none());
    }
}
