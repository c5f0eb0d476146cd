//! The Lua scripts that pgcache supports. Each is identified by the SHA-1 of the exact text that a package sends. The
//! digests were computed from the packages.
//!
//! docs/door.md has the same list, and a test compares the two.

/// The effect of a script. `KEYS` and `ARGV` are the arguments that its package sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Native {
    /// Removes the key if its value is ARGV[1].
    DeleteEqual,
    /// Removes each of the keys whose value is ARGV[1]. Returns their number.
    DeleteEqualEach,
    /// Sets the key's time to ARGV[2] milliseconds if its value is ARGV[1].
    RenewEqual,
    /// Sets the key's deadline to the moment ARGV[2] if its value is ARGV[1].
    ExpireAtEqual,
    /// Adds ARGV[2] milliseconds to the key's time if its value is ARGV[1]. With an ARGV[3] other than 0, sets the time
    /// to ARGV[2] milliseconds instead.
    ExtendEqual,
    /// Sets all keys to ARGV[1] for ARGV[2] milliseconds if none of them exists. Returns the number of keys set.
    AcquireAll,
    /// Sets the time of all keys to ARGV[2] milliseconds if each has the value ARGV[1]. Returns the number of keys
    /// changed.
    ExtendAll,
    /// Sets the key to ARGV[1] for ARGV[2] milliseconds if it does not exist. Replies as SET does.
    Acquire,
    /// Sets the key to ARGV[1] until the moment ARGV[2] if it does not exist. Replies as SET does.
    AcquireUntil,
    /// Sets the key to ARGV[1] for ARGV[2] milliseconds, whether it exists or not.
    SetFor,
    /// Sets the key to ARGV[1] until the moment ARGV[2], whether it exists or not.
    SetUntil,
    /// Sets the key to ARGV[1] for ARGV[2] seconds if it does not exist. Fails as SETEX does.
    Add,
    /// Adds ARGV[1] to the key's number.
    Increment,
    /// Adds ARGV[1] to the key's number if the key exists.
    IncrementExisting,
    /// Counts in a window of ARGV[2] milliseconds. The window begins now if none is running or ARGV[1] is 1. Returns
    /// the count and the time left.
    CountInWindow,
    /// Counts as `CountInWindow` does, but the count begins at one if no window is running.
    CountInNewWindow,
    /// Counts as `CountInNewWindow` does, in a window of ARGV[1] milliseconds and without a reset.
    CountInFixedWindow,
    /// Returns the count and the time left.
    ReadWindow,
}

/// A supported script.
#[derive(Debug)]
pub struct Script {
    /// Hexadecimal, in lower case.
    pub digest: &'static str,
    pub native: Native,
    /// The package that sends it.
    #[allow(
        dead_code,
        reason = "read by people, and compared with the page that lists them"
    )]
    pub package: &'static str,
}

const fn script(digest: &'static str, native: Native, package: &'static str) -> Script {
    Script {
        digest,
        native,
        package,
    }
}

/// All supported scripts.
#[rustfmt::skip]
pub static TABLE: &[Script] = &[
    script("c3f8721cbb97f72bc19e972846bd7aaf91901658", Native::DeleteEqual, "redis-py, Lock.release"),
    script("a4e8783852e6b949f9ef3a97212805108459a890", Native::ExtendEqual, "redis-py, Lock.extend"),
    script("1cac51482acf5858da00f6d685d68f886cd6b6b2", Native::RenewEqual, "redis-py, Lock.reacquire"),
    script("f4a7da3e5d8ea3b46642af08427151cae0190400", Native::IncrementExisting, "django-redis, incr"),
    script("4d15273b16b10c15e1d9202cbe93c959ab7d250b", Native::Increment, "django-redis, incr with ignore_key_check"),
    script("a08c9c69b7c07ae2485190873b90d128a23e502d", Native::Add, "Laravel, add"),
    script("647c65a442733a1aa440f99908d249d13b4d6c4a", Native::DeleteEqual, "Laravel, release of a lock"),
    script("e5a322e2634ef59a516e8ea150cb085afafee684", Native::AcquireAll, "redlock 4, acquire"),
    script("0f0f23b9048b36752b5be114f357ba083449f908", Native::DeleteEqualEach, "redlock 4, release"),
    script("ce46f80993d5dac20dd066eb301a4e37994bdbed", Native::ExtendAll, "redlock 4, extend"),
    script("96da70f7716f27d278a5218544df37fd8b0a5e4c", Native::AcquireAll, "redlock 5, acquire"),
    script("e4612211c9f8f51c257e26e056b0a654b3187242", Native::DeleteEqualEach, "redlock 5, release"),
    script("aed6f382e410db8ba7926d4e5e9aab410bf2a78a", Native::ExtendAll, "redlock 5, extend"),
    script("7726c7be95e2a0ed082ec1da1e26b562f5c8903f", Native::DeleteEqual, "rueidislock before Go 1.22, release"),
    script("8c2dd3ce05f3aace5fa1002a403139a7fbab3226", Native::ExpireAtEqual, "rueidislock before Go 1.22, extend"),
    script("9eb62214c9af87ae5f9a9f12bb4520281c0d2ae1", Native::DeleteEqual, "rueidislock, release"),
    script("852ba6ec6104340ced36643283c856d4698569e4", Native::ExpireAtEqual, "rueidislock, extend"),
    script("fa3d1aaa7e4145457755016a3d5daf72fa7a11bf", Native::Acquire, "rueidislock, acquire for"),
    script("3875d208d9e377969d2022550302cc83ad17b584", Native::AcquireUntil, "rueidislock, acquire until"),
    script("4384ed08baff4dd7071b6c78c516a2fded4ee3e7", Native::SetFor, "rueidislock, force for"),
    script("c10e8119872659b926e8e28002d9b7fccbf15617", Native::SetUntil, "rueidislock, force until"),
    script("3f424a504987d231baa2e19159bb5def8ad32f87", Native::CountInWindow, "rate-limit-redis 3 and 4, increment"),
    script("81dbecea94d2d10514719b20ed51faf711529d9d", Native::CountInNewWindow, "rate-limit-redis 5, increment"),
    script("895b92e1712734e1b464999be23953485475357b", Native::CountInFixedWindow, "rate-limit-redis 6, increment"),
    script("6aeb97ed6086dcdeafdc6fda3999a0d0e38ec96a", Native::ReadWindow, "rate-limit-redis, get"),
];
