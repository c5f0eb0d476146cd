//! The web server of the published workloads: /get and /set over one cache, Redis or Postgres.
//!
//! The server has no logic: each request is one call of the store. A hit returns 200 with the value, a miss returns
//! 404.

use std::io::BufReader;
use std::net::{TcpListener, TcpStream};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;

use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Bytes};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::runtime::Builder;

use crate::postgres;
use crate::protocol::connect;
use crate::redis;
use crate::{Failure, Options, Result};

type Answer = Full<Bytes>;

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

    /// Gets a value. In Postgres a miss is an empty result from a table, and NULL from a function.
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

/// The connections to the store. If none is free, a request waits.
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
    println!("listening on {}", listener.local_addr()?); // the starting process reads the port here
    thread::scope(|scope| {
        for stream in listener.incoming() {
            let stream = stream?;
            scope.spawn(move || serve(stream, pool));
        }
        Ok("{}".into())
    })
}

/// Serves a client until it disconnects or sends an invalid request. Each connection has its own thread, which waits
/// for the store.
fn serve(stream: TcpStream, pool: &Pool) -> Result<()> {
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    Builder::new_current_thread().enable_io().build()?.block_on(async {
        let stream = TokioIo::new(tokio::net::TcpStream::from_std(stream)?);
        let service = service_fn(|request| respond(request, pool));
        Ok(hyper::server::conn::http1::Builder::new().serve_connection(stream, service).await?)
    })
}

async fn respond<B: Body<Error: Into<Failure>>>(
    request: Request<B>,
    pool: &Pool,
) -> Result<Response<Answer>> {
    let (head, body) = request.into_parts();
    let key = head.uri.query().and_then(|query| query.strip_prefix("key=")).unwrap_or_default().as_bytes();
    let answer = match (head.method.as_str(), head.uri.path()) {
        ("GET", "/get") => pool.with(|store| store.get(key)).map(|value| match value {
            Some(value) => (StatusCode::OK, value),
            None => (StatusCode::NOT_FOUND, Vec::new()),
        }),
        ("POST", "/set") => {
            let body = body.collect().await.map_err(Into::into)?.to_bytes();
            pool.with(|store| store.set(key, &body)).map(|()| (StatusCode::NO_CONTENT, Vec::new()))
        }
        _ => Ok((StatusCode::BAD_REQUEST, Vec::new())),
    };
    let (status, body) =
        answer.unwrap_or_else(|reason| (StatusCode::INTERNAL_SERVER_ERROR, reason.to_string().into_bytes()));
    Ok(Response::builder().status(status).body(body.into())?)
}
