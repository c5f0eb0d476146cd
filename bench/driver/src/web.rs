//! The web server of the published workloads: /get and /set over one cache, Redis or Postgres.
//!
//! It decides nothing: a request is one call of the store. Hits answer 200 with the value, misses 404.

use std::io::{BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;

use crate::http::length;
use crate::postgres;
use crate::protocol::connect;
use crate::redis;
use crate::{Options, Result};

/// A connection to the store.
enum Store {
    Redis(redis::Session),
    Postgres(postgres::Session),
}

impl Store {
    fn open(options: &Options) -> Result<Store> {
        let address: String = options.get("socket")?;
        if options.get::<String>("protocol")? == "redis" {
            return Ok(Store::Redis(redis::Session(BufReader::new(connect(&address)?))));
        }
        let (database, read, write): (String, String, String) =
            (options.or("database", "postgres".into())?, options.get("read-sql")?, options.get("write-sql")?);
        let statements = [("read", read.as_str()), ("write", &write)];
        Ok(Store::Postgres(postgres::Session::open(&address, &database, &statements)?))
    }

    /// A miss is no row from a table and a NULL from a function.
    fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        match self {
            Store::Redis(session) => session.call(&[b"GET", key]),
            Store::Postgres(session) => Ok(session.one("read", &[Some(key)])?.map(String::into_bytes)),
        }
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        match self {
            Store::Redis(session) => session.call(&[b"SET", key, value]).map(drop),
            Store::Postgres(session) => session.call("write", &[Some(key), Some(value)]).map(drop),
        }
    }
}

/// Connections to the store; a request that finds none free waits.
struct Pool {
    free: Mutex<Vec<Store>>,
    freed: Condvar,
}

impl Pool {
    fn with<T>(&self, work: impl FnOnce(&mut Store) -> T) -> T {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let mut free =
            self.freed.wait_while(free, |free| free.is_empty()).unwrap_or_else(PoisonError::into_inner);
        let mut store = free.pop().expect("waited until there is one");
        drop(free);
        let done = work(&mut store);
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(store);
        self.freed.notify_one();
        done
    }
}

pub fn main(options: &Options) -> Result<String> {
    let stores = (0..options.or("connections", 16)?).map(|_| Store::open(options)).collect::<Result<_>>()?;
    let pool = &Pool { free: Mutex::new(stores), freed: Condvar::new() };
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("listening on {}", listener.local_addr()?); // whoever started us reads the port here
    thread::scope(|scope| {
        for stream in listener.incoming() {
            let stream = stream?;
            scope.spawn(move || serve(stream, pool));
        }
        Ok("{}".into())
    })
}

/// Until the client goes, or sends what is no request.
fn serve(mut stream: TcpStream, pool: &Pool) -> Result<()> {
    stream.set_nodelay(true)?;
    let (mut input, mut buffer) = (Vec::new(), [0; 16 * 1024]);
    loop {
        while let Some((answer, taken)) = respond(&input, pool)? {
            stream.write_all(&answer)?;
            input.drain(..taken);
        }
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            got => input.extend_from_slice(&buffer[..got]),
        }
    }
}

/// The answer and how much of the input it is for, or None while the request is incomplete.
fn respond(input: &[u8], pool: &Pool) -> Result<Option<(Vec<u8>, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut request = httparse::Request::new(&mut headers);
    let httparse::Status::Complete(start) = request.parse(input)? else {
        return Ok(None);
    };
    let end = start + length(request.headers)?;
    let Some(body) = input.get(start..end) else {
        return Ok(None);
    };
    let (path, key) = request.path.unwrap_or("").split_once("?key=").unwrap_or_default();
    let answer = match (request.method, path) {
        (Some("GET"), "/get") => match pool.with(|store| store.get(key.as_bytes())) {
            Ok(Some(value)) => reply("200 OK", &value),
            Ok(None) => reply("404 Not Found", b""),
            Err(reason) => failed(reason),
        },
        (Some("POST"), "/set") => match pool.with(|store| store.set(key.as_bytes(), body)) {
            Ok(()) => b"HTTP/1.1 204 No Content\r\n\r\n".to_vec(),
            Err(reason) => failed(reason),
        },
        _ => reply("400 Bad Request", b""),
    };
    Ok(Some((answer, end)))
}

fn failed(reason: Box<dyn std::error::Error + Send + Sync>) -> Vec<u8> {
    reply("500 Internal Server Error", reason.to_string().as_bytes())
}

fn reply(status: &str, body: &[u8]) -> Vec<u8> {
    let mut out = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
    out.extend_from_slice(body);
    out
}
