//! Checks a client's password against the stored password of its role.
//!
//! Three rules hold. First, the check of a wrong password takes as long as the first check of a right password, even if
//! the role does not exist; otherwise the time would reveal which roles exist. Second, a password that was verified
//! once is recognized without the computation of SCRAM, as long as the stored secret stays the same. Third, memory
//! keeps no password and no data from which an attacker could guess one: only a keyed hash, whose key exists only in
//! this process.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};

use pgrx::pg_sys::{self, Oid};

use crate::pg::memory::unguarded::guarded;

unsafe extern "C-unwind" {
    fn pg_be_scram_build_secret(password: *const c_char) -> *mut c_char;
    fn pg_hmac_create(kind: c_int) -> *mut c_void;
    fn pg_hmac_init(context: *mut c_void, key: *const u8, length: usize) -> c_int;
    fn pg_hmac_update(context: *mut c_void, data: *const u8, length: usize) -> c_int;
    fn pg_hmac_final(context: *mut c_void, to: *mut u8, length: usize) -> c_int;
    fn pg_hmac_free(context: *mut c_void);
}

/// From common/cryptohash.h.
const PG_SHA256: c_int = 3;
/// From c.h.
const STATUS_OK: c_int = 0;
/// The longest password that Postgres accepts from a client (PG_MAX_AUTH_TOKEN_LENGTH of libpq/auth.h).
const LONGEST: usize = 65_535;
/// The maximum number of remembered roles. When it is exceeded, the process forgets all of them.
const REMEMBERED: usize = 1_024;

/// The keyed hash of a stored secret and a password.
type Mark = [u8; 32];

thread_local! {
    static KEY: OnceCell<Option<[u8; 32]>> = const { OnceCell::new() };
    static PAIRS: RefCell<HashMap<u32, Mark>> = RefCell::default();
}

/// Returns whether this is the password of the role, and has not expired (VALID UNTIL). The first check of a password
/// takes some milliseconds. With `scram_only`, returns false for a password that is stored as md5.
pub fn is_right(role: Oid, name: &CStr, password: &[u8], scram_only: bool) -> bool {
    // Like Postgres, accepts no empty password, whatever secret is stored.
    let fits = (1..=LONGEST).contains(&password.len());
    let Some(password) = CString::new(password).ok().filter(|_| fits) else {
        return false;
    };
    let Some(secret) = secret(name).filter(|secret| !scram_only || is_scram(secret)) else {
        spend(&password);
        return false;
    };
    let mark = mark(&secret, &password);
    if mark.is_some_and(|mark| is_known(role, &mark)) {
        return true;
    }
    let right = verify(name, &secret, &password);
    if let Some(mark) = mark.filter(|_| right) {
        remember(role, mark);
    }
    right
}

/// Returns the role's stored secret; None if the role has no secret, if the password has expired, or if the role does
/// not exist.
fn secret(name: &CStr) -> Option<CString> {
    let mut why = std::ptr::null();
    // SAFETY: a syscache lookup within a transaction; the result is NULL or a palloc'd copy.
    unsafe {
        let secret = pg_sys::get_role_password(name.as_ptr(), &raw mut why);
        (!secret.is_null()).then(|| CStr::from_ptr(secret).to_owned())
    }
}

fn is_scram(secret: &CStr) -> bool {
    // SAFETY: reads a C string that lives through the call.
    let kind = unsafe { pg_sys::get_password_type(secret.as_ptr()) };
    kind == pg_sys::PasswordType::PASSWORD_TYPE_SCRAM_SHA_256
}

fn verify(name: &CStr, secret: &CStr, password: &CStr) -> bool {
    let mut why = std::ptr::null();
    // SAFETY: C strings that live through the call, which keeps none.
    unsafe {
        let (name, secret, password) = (name.as_ptr(), secret.as_ptr(), password.as_ptr());
        pg_sys::plain_crypt_verify(name, secret, password, &raw mut why) == STATUS_OK
    }
}

/// Computes what a verification computes and discards the result, so that a refusal takes as long as a verification.
fn spend(password: &CStr) {
    let password = password.as_ptr();
    // SAFETY: inside `guarded` an error jumps over nothing that must be dropped; the C string lives through the call,
    // and the result is freed with the transaction's memory.
    unsafe { guarded(|| pg_be_scram_build_secret(password)) };
}

fn is_known(role: Oid, mark: &Mark) -> bool {
    PAIRS.with(|pairs| {
        let pairs = pairs.borrow();
        pairs.get(&role.to_u32()).is_some_and(|known| {
            let differing = known.iter().zip(mark).map(|(one, other)| one ^ other);
            differing.fold(0, |all, bits| all | bits) == 0
        })
    })
}

fn remember(role: Oid, mark: Mark) {
    PAIRS.with(|pairs| {
        let mut pairs = pairs.borrow_mut();
        if pairs.len() >= REMEMBERED && !pairs.contains_key(&role.to_u32()) {
            pairs.clear();
        }
        pairs.insert(role.to_u32(), mark);
    });
}

/// Returns the keyed hash; None if random numbers or memory are lacking, in which case the process does not remember
/// the password.
fn mark(secret: &CStr, password: &CStr) -> Option<Mark> {
    let key = KEY.with(|key| *key.get_or_init(new_key))?;
    // The NUL at the end of the secret separates it from the password, so that no other pair has the same bytes.
    let (secret, password) = (secret.to_bytes_with_nul(), password.to_bytes());
    let mut mark = [0; 32];
    let (to, length) = (mark.as_mut_ptr(), mark.len());
    // SAFETY: inside `guarded` an error jumps over nothing that must be dropped. The context is used only if it was
    // created, and is freed; each length is that of the data to which its pointer refers.
    let made = unsafe {
        guarded(|| {
            let context = pg_hmac_create(PG_SHA256);
            if context.is_null() {
                return false;
            }
            let made = pg_hmac_init(context, key.as_ptr(), key.len()) >= 0
                && pg_hmac_update(context, secret.as_ptr(), secret.len()) >= 0
                && pg_hmac_update(context, password.as_ptr(), password.len()) >= 0
                && pg_hmac_final(context, to, length) >= 0;
            pg_hmac_free(context);
            made
        })
    };
    made.then_some(mark)
}

fn new_key() -> Option<[u8; 32]> {
    let mut key = [0_u8; 32];
    // SAFETY: writes exactly the bytes of the key.
    let filled = unsafe { pg_sys::pg_strong_random(key.as_mut_ptr().cast(), key.len()) };
    filled.then_some(key)
}
