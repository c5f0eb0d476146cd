//! stampede-client: shop visitors who look products up in a cache that is empty at first, and the slow
//! database behind it. Prints one JSON object.
//!
//! stampede-client --socket DIR --port N --mode lease|fetch|none --clients N --seconds S
//!                 --pool P --latency-ms L
//!
//! The database is a pool of P connections that each need L for a query: a semaphore and a sleep in the
//! client (lease, none), or in the loader that the server runs (fetch).

mod latency;
mod visitor;
mod visits;

use std::collections::HashMap;
use std::process::ExitCode;
use std::rc::Rc;
use std::str::FromStr;
use std::time::{Duration, Instant};

use tokio::task::LocalSet;

use latency::summary;
use visitor::{Counts, Mode, Visitor};
use visits::Backend;

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let result = runtime
        .map_err(|e| e.to_string())
        .and_then(|runtime| runtime.block_on(LocalSet::new().run_until(run())));
    match result {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(reason) => {
            eprintln!("stampede-client: {reason}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<String, String> {
    let options = Options::read()?;
    let mode = Mode::named(&options.get::<String>("mode")?)?;
    let backend =
        Rc::new(Backend::new(options.get("pool")?, Duration::from_millis(options.get("latency-ms")?)));
    let mut visitors = Vec::new();
    for number in 0..options.get::<u64>("clients")? {
        let (socket, port) = (options.get::<String>("socket")?, options.get("port")?);
        visitors.push(Visitor::connect(&socket, port, mode, number, Rc::clone(&backend)).await?);
    }
    let begin = Instant::now();
    let end = begin + Duration::from_secs_f64(options.get("seconds")?);
    let tasks: Vec<_> =
        visitors.into_iter().map(|visitor| tokio::task::spawn_local(visitor.visit_until(end))).collect();
    let mut all = Counts::default();
    for task in tasks {
        all.add(task.await.map_err(|e| e.to_string())?);
    }
    Ok(to_json(all, begin.elapsed(), &backend))
}

fn to_json(mut all: Counts, took: Duration, backend: &Backend) -> String {
    let latency = summary(&mut all.micros);
    format!(
        "{{\"requests\":{},\"seconds\":{:.3},\"queries\":{},\"most_at_once\":{},\"stale\":{},\"errors\":{},\
         \"first_error\":{:?},\"wrong\":{},{latency}}}",
        all.requests,
        took.as_secs_f64(),
        backend.queries(),
        backend.most_at_once(),
        all.stale,
        all.errors,
        all.first_error,
        all.wrong,
    )
}

struct Options(HashMap<String, String>);

impl Options {
    fn read() -> Result<Options, String> {
        let mut options = HashMap::new();
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let name = word.strip_prefix("--").ok_or_else(|| format!("{word} is no option"))?;
            let value = words.next().ok_or_else(|| format!("--{name} needs a value"))?;
            options.insert(name.to_owned(), value);
        }
        Ok(Options(options))
    }

    fn get<T: FromStr>(&self, name: &str) -> Result<T, String> {
        let text = self.0.get(name).ok_or_else(|| format!("--{name} is missing"))?;
        text.parse().map_err(|_| format!("--{name} {text} cannot be read"))
    }
}
