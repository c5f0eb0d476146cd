//! The names of Redis' commands on data structures: lists, hashes, sets, sorted sets, streams, bits.
//!
//! The server supports none of these commands. The error for such a command says that the client uses Redis for more
//! than a plain cache.

/// The names, sorted.
#[rustfmt::skip]
const COMMANDS: [&str; 136] = [
    "BITCOUNT", "BITFIELD", "BITFIELD_RO", "BITOP", "BITPOS", "BLMOVE", "BLMPOP", "BLPOP", "BRPOP",
    "BRPOPLPUSH", "BZMPOP", "BZPOPMAX", "BZPOPMIN", "GEOADD", "GEODIST", "GEOHASH", "GEOPOS",
    "GEORADIUS", "GEORADIUSBYMEMBER", "GEOSEARCH", "GEOSEARCHSTORE", "GETBIT", "HDEL", "HEXISTS",
    "HEXPIRE", "HEXPIREAT", "HEXPIRETIME", "HGET", "HGETALL", "HGETDEL", "HGETEX", "HINCRBY",
    "HINCRBYFLOAT", "HKEYS", "HLEN", "HMGET", "HMSET", "HPERSIST", "HPEXPIRE", "HPEXPIREAT",
    "HPEXPIRETIME", "HPTTL", "HRANDFIELD", "HSCAN", "HSET", "HSETEX", "HSETNX", "HSTRLEN", "HTTL",
    "HVALS", "LINDEX", "LINSERT", "LLEN", "LMOVE", "LMPOP", "LPOP", "LPOS", "LPUSH", "LPUSHX",
    "LRANGE", "LREM", "LSET", "LTRIM", "PFADD", "PFCOUNT", "PFMERGE", "RPOP", "RPOPLPUSH", "RPUSH",
    "RPUSHX", "SADD", "SCARD", "SDIFF", "SDIFFSTORE", "SETBIT", "SINTER", "SINTERCARD",
    "SINTERSTORE", "SISMEMBER", "SMEMBERS", "SMISMEMBER", "SMOVE", "SORT", "SORT_RO", "SPOP",
    "SRANDMEMBER", "SREM", "SSCAN", "SUNION", "SUNIONSTORE", "XACK", "XADD", "XAUTOCLAIM",
    "XCLAIM", "XDEL", "XGROUP", "XINFO", "XLEN", "XPENDING", "XRANGE", "XREAD", "XREADGROUP",
    "XREVRANGE", "XTRIM", "ZADD", "ZCARD", "ZCOUNT", "ZDIFF", "ZDIFFSTORE", "ZINCRBY", "ZINTER",
    "ZINTERCARD", "ZINTERSTORE", "ZLEXCOUNT", "ZMPOP", "ZMSCORE", "ZPOPMAX", "ZPOPMIN",
    "ZRANDMEMBER", "ZRANGE", "ZRANGEBYLEX", "ZRANGEBYSCORE", "ZRANGESTORE", "ZRANK", "ZREM",
    "ZREMRANGEBYLEX", "ZREMRANGEBYRANK", "ZREMRANGEBYSCORE", "ZREVRANGE", "ZREVRANGEBYLEX",
    "ZREVRANGEBYSCORE", "ZREVRANK", "ZSCAN", "ZSCORE", "ZUNION", "ZUNIONSTORE",
];

/// Returns whether this is the name of a command on data structures, in lower or upper case.
pub fn is_one(name: &[u8]) -> bool {
    let order = |known: &&str| {
        known
            .as_bytes()
            .iter()
            .copied()
            .cmp(name.iter().map(u8::to_ascii_uppercase))
    };
    COMMANDS.binary_search_by(order).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_found_and_no_command_that_is_served_is_among_them() {
        assert!(COMMANDS.is_sorted());
        for name in COMMANDS {
            assert!(
                is_one(name.as_bytes()) && is_one(name.to_lowercase().as_bytes()),
                "{name}"
            );
            assert!(crate::find(name.as_bytes()).is_none(), "{name} is served");
        }
        for other in ["", "GET", "SE", "ZZZ", "HELLO"] {
            assert!(!is_one(other.as_bytes()), "{other}");
        }
    }
}
