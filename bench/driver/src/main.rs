//! bench-driver: the client of all benchmarks, and the web server of one benchmark. Prints one JSON object.
//!
//! bench-driver requests  --protocol redis|memcached|postgres|http --socket PATH|HOST:PORT
//!                        --workload baseline|read|set|write|mixed|cached|preload   (`preload`: Redis, memcached)
//!                        --entries N [--keys uniform|zipf|hot] [--offset 0] [--value TEXT | --value-size BYTES]
//!                        [--clients 8] [--threads 1] [--seconds 5 | --gets N] [--warmup 0 | --warmup-gets N]
//!                        [--database postgres] [--read-sql TEXT --write-sql TEXT]                   (postgres)
//! bench-driver kv        --store pgcache|etcd --socket PATH --load NAME --clients N [--operations N] [--seconds S]
//! bench-driver visitors  --socket PATH --mode lease|fetch|none --clients N --seconds S --pool P --latency-ms L
//! bench-driver web       --protocol redis|postgres --socket PATH|HOST:PORT --connections N [--read-sql, --write-sql]
//! bench-driver scaling   --seconds S

mod http;
mod key_distribution;
mod kv;
mod latency;
mod load;
mod memcached;
mod postgres;
mod protocol;
mod random;
mod redis;
mod requests;
mod scaling;
mod visitors;
mod web;
mod zipf;

use std::collections::HashMap;
use std::error::Error;
use std::process::ExitCode;
use std::str::FromStr;

pub type Failure = Box<dyn Error + Send + Sync>;
pub type Result<T> = std::result::Result<T, Failure>;

fn main() -> ExitCode {
    match run() {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(reason) => {
            eprintln!("bench-driver: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<String> {
    let mut words = std::env::args().skip(1);
    let mode = words.next().unwrap_or_default();
    let options = Options::read(words.collect())?;
    match mode.as_str() {
        "requests" => requests::main(&options),
        "kv" => kv::main(&options),
        "visitors" => visitors::main(&options),
        "web" => web::main(&options),
        "scaling" => scaling::main(&options),
        other => Err(format!("there is no mode {other:?}").into()),
    }
}

pub struct Options(HashMap<String, String>);

impl Options {
    fn read(words: Vec<String>) -> Result<Self> {
        let pairs = words.chunks(2).map(|pair| match pair {
            [name, value] if name.starts_with("--") => Ok((name[2..].to_string(), value.clone())),
            _ => Err(format!("expected --name value, got {pair:?}").into()),
        });
        Ok(Options(pairs.collect::<Result<_>>()?))
    }

    pub fn get<T: FromStr>(&self, name: &str) -> Result<T> {
        let text = self.0.get(name).ok_or_else(|| format!("--{name} is missing"))?;
        text.parse().map_err(|_| format!("--{name} {text} makes no sense").into())
    }

    pub fn or<T: FromStr>(&self, name: &str, default: T) -> Result<T> {
        if self.0.contains_key(name) { self.get(name) } else { Ok(default) }
    }
}
