//! Finds a key with a given hash under Postgres' hash of texts. Citus picks a shard by this hash, so a call that
//! targets a shard needs a key with the right hash.
//!
//! The hash is Jenkins' lookup3, as in `src/common/hashfn.c` of Postgres, and its steps can be undone. For texts of
//! twelve bytes, and for any choice of the other two words of the final state, exactly one text has the hash. The
//! search tries one choice after another until the text is plain ASCII; about one text in 4,400 is.

type Words = [u32; 3];

/// The initial state for a text of twelve bytes.
const BEGIN: u32 = 0x9e37_79b9_u32.wrapping_add(12).wrapping_add(3_923_095);

/// Returns twelve bytes of ASCII without a NUL byte that have this hash.
pub fn key_of_hash(hash: u32) -> [u8; 12] {
    let mut number: u64 = 0;
    loop {
        let words = before_mix(before_final([(number >> 32) as u32, number as u32, hash]));
        let words = words.map(|word| word.wrapping_sub(BEGIN).to_ne_bytes());
        let mut bytes = [0; 12];
        for (part, word) in bytes.chunks_exact_mut(4).zip(words) {
            part.copy_from_slice(&word);
        }
        if bytes.iter().all(|byte| matches!(byte, 1..=0x7f)) {
            return bytes;
        }
        number += 1;
    }
}

/// Undoes `final` of lookup3.
fn before_final([mut a, mut b, mut c]: Words) -> Words {
    c = c.wrapping_add(b.rotate_left(24)) ^ b;
    b = b.wrapping_add(a.rotate_left(14)) ^ a;
    a = a.wrapping_add(c.rotate_left(4)) ^ c;
    c = c.wrapping_add(b.rotate_left(16)) ^ b;
    b = b.wrapping_add(a.rotate_left(25)) ^ a;
    a = a.wrapping_add(c.rotate_left(11)) ^ c;
    c = c.wrapping_add(b.rotate_left(14)) ^ b;
    [a, b, c]
}

/// Undoes `mix` of lookup3.
fn before_mix([mut a, mut b, mut c]: Words) -> Words {
    b = b.wrapping_sub(a);
    c = (c ^ b.rotate_left(4)).wrapping_add(b);
    a = a.wrapping_sub(c);
    b = (b ^ a.rotate_left(19)).wrapping_add(a);
    c = c.wrapping_sub(b);
    a = (a ^ c.rotate_left(16)).wrapping_add(c);
    b = b.wrapping_sub(a);
    c = (c ^ b.rotate_left(8)).wrapping_add(b);
    a = a.wrapping_sub(c);
    b = (b ^ a.rotate_left(6)).wrapping_add(a);
    c = c.wrapping_sub(b);
    a = (a ^ c.rotate_left(4)).wrapping_add(c);
    [a, b, c]
}
