//! redis-rs, in both versions of the protocol.

use std::error::Error;
use std::time::Duration;

use redis::{Client, Commands, Connection, ProtocolVersion, Value};

fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("REDIS_URL")?;
    for (parameter, version) in [("resp2", ProtocolVersion::RESP2), ("resp3", ProtocolVersion::RESP3)] {
        println!("{version:?}");
        sheet(&Client::open(format!("{url}?protocol={parameter}"))?)?;
    }
    Ok(())
}

fn sheet(client: &Client) -> Result<(), Box<dyn Error>> {
    let mut r = client.get_connection()?;
    let first: Value = r.set_ex("tea", b"\x00\xff hot".as_slice(), 60)?;
    let second: bool = r.set_nx("tea", "x")?;
    println!("set {first:?} {second}");
    let (tea, nothing): (Vec<u8>, Option<String>) = (r.get("tea")?, r.get("nothing")?);
    println!("get {tea:?} {nothing:?}");
    let (left, none, kept): (i64, i64, bool) = (r.ttl("tea")?, r.ttl("nothing")?, r.persist("tea")?);
    println!("ttl {} {none} {kept}", 0 < left && left <= 60);
    let numbers: (i64, i64, f64) = (r.incr("n", 42)?, r.decr("n", 1)?, r.incr("f", 1.5)?);
    println!("incr {numbers:?}");
    let set: Value = r.mset(&[("a", 1), ("b", 2)])?;
    let many: Vec<Option<i64>> = r.mget(&["a", "b", "c"])?;
    let gone: i64 = r.del(&["a", "c"])?;
    println!("many {set:?} {many:?} {gone}");
    let mut keys = r.scan_match::<_, String>("*")?.collect::<Result<Vec<_>, _>>()?;
    keys.sort();
    keys.dedup();
    println!("scan {keys:?}");
    let piped: (Value, i64, i64) = redis::pipe().set("p", 1).get("p").incr("p", 1).query(&mut r)?;
    println!("pipeline {piped:?}");
    let all: (i64, i64) = redis::pipe().atomic().incr("n", 1).get("n").query(&mut r)?;
    println!("multi {all:?}");
    let mut others = 0;
    let kept: (i64,) = redis::transaction(&mut r, &["n"], |r, pipe| {
        if others < 2 {
            others += 1;
            let _: i64 = client.get_connection()?.incr("n", 1)?;
        }
        let seen: i64 = r.get("n")?;
        pipe.set("n", seen * 2).ignore().get("n").query(r)
    })?;
    println!("watch {kept:?} after {others}");
    let wrong: Result<i64, _> = r.incr("tea", 1);
    println!("error {}", wrong.err().ok_or("it was an error")?);
    println!("pubsub {:?}", heard(client, &mut r)?);
    let cleared: Value = redis::cmd("FLUSHDB").query(&mut r)?;
    let size: i64 = redis::cmd("DBSIZE").query(&mut r)?;
    println!("clear {cleared:?} {size}");
    Ok(())
}

fn heard(client: &Client, r: &mut Connection) -> Result<(String, String, i64), Box<dyn Error>> {
    let mut listener = client.get_connection()?;
    listener.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut listener = listener.as_pubsub();
    listener.subscribe("redis_rs")?;
    let count = r.publish("redis_rs", "hello")?;
    let message = listener.get_message()?;
    Ok((message.get_channel_name().to_owned(), message.get_payload()?, count))
}
