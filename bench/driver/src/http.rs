//! Simulates users of the web server in front of a store, who send GET /get?key= and POST /set?key= with hyper's
//! client.
//!
//! Each thread has a runtime for its users. A user keeps one connection, with one request in flight.

use std::cell::RefCell;
use std::time::Instant;

use futures_util::future::try_join_all;
use http::header::HOST;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::runtime::Builder;

use crate::key_distribution::key;
use crate::load::{Counts, End, Load};
use crate::protocol::{Command, Reply};
use crate::{Failure, Result};

pub fn run(load: Load, users: usize) -> Result<Counts> {
    let plan = load.plan;
    let (load, value) = (RefCell::new(load), Bytes::copy_from_slice(&plan.value));
    let runtime = Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        let connecting = (0..users).map(|_| User::connect(&plan.address, &value));
        let mut users = try_join_all(connecting).await?;
        visit(&mut users, &load, plan.warmup).await?;
        load.borrow_mut().counts = Counts::default();
        let start = Instant::now();
        visit(&mut users, &load, plan.end).await?;
        load.borrow_mut().counts.seconds = start.elapsed().as_secs_f64();
        Ok::<_, Failure>(())
    })?;
    Ok(load.into_inner().counts)
}

/// Lets the users send requests until the end, and waits for the last answer to each user.
async fn visit(users: &mut [User], load: &RefCell<Load<'_>>, end: End) -> Result<()> {
    let start = Instant::now();
    try_join_all(users.iter_mut().map(|user| user.visit_until(load, end, start))).await.map(drop)
}

struct User {
    connection: SendRequest<Full<Bytes>>,
    value: Bytes,
}

impl User {
    async fn connect(address: &str, value: &Bytes) -> Result<User> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (connection, driver) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(driver); // if the driver fails, so does the request in flight
        Ok(User { connection, value: value.clone() })
    }

    async fn visit_until(&mut self, load: &RefCell<Load<'_>>, end: End, start: Instant) -> Result<()> {
        let mut command = load.borrow_mut().draw();
        while !load.borrow().reached(end, start) {
            let sent = Instant::now();
            let reply = self.ask(command).await?;
            command = load.borrow_mut().answered(command, sent, &reply);
        }
        Ok(())
    }

    async fn ask(&mut self, command: Command) -> Result<Reply> {
        let request = request(command, &self.value)?;
        self.connection.ready().await?;
        let (head, body) = self.connection.send_request(request).await?.into_parts();
        judge(head.status, &body.collect().await?.to_bytes(), &self.value)
    }
}

fn request(command: Command, value: &Bytes) -> Result<Request<Full<Bytes>>> {
    let (method, path, number, body) = match command {
        Command::Baseline => return Err("the web server has no baseline".into()),
        Command::Get(number) => (Method::GET, "/get?key=", number, Bytes::new()),
        Command::Set(number) => (Method::POST, "/set?key=", number, value.clone()),
    };
    let target = [path.as_bytes(), &key(number)].concat();
    Ok(Request::builder().method(method).uri(target).header(HOST, "cache").body(Full::new(body))?)
}

fn judge(status: StatusCode, body: &[u8], value: &[u8]) -> Result<Reply> {
    match status {
        StatusCode::OK if body == value => Ok(Reply::Hit),
        StatusCode::NO_CONTENT => Ok(Reply::Done),
        StatusCode::NOT_FOUND => Ok(Reply::Miss),
        _ => Err(format!("{status}: {}", String::from_utf8_lossy(body)).into()),
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use http::Response;
    use hyper::body::Incoming;
    use hyper::server::conn::http1;
    use hyper::service::service_fn;
    use tokio::net::TcpListener;

    use super::*;
    use crate::key_distribution::{KeyDistribution, Keys};
    use crate::load::{Plan, Workload};

    const USERS: usize = 3;
    const VALUE: &str = "abc";
    const KEYS: KeyDistribution = KeyDistribution { entries: 40, offset: 0, keys: Keys::Uniform };

    /// Runs 200 gets, mixed with sets, on a server that accepts one connection of each user and no more.
    fn run_against(answer: fn(&str, &[u8]) -> (StatusCode, &'static str)) -> Result<Counts> {
        let runtime = Builder::new_current_thread().enable_io().build()?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let address = listener.local_addr()?.to_string();
        thread::spawn(move || runtime.block_on(accept_each_user(listener, answer)));
        let (value, end) = (VALUE.into(), End::Gets(200));
        let plan = Plan { address, workload: Workload::Mixed, keys: KEYS, value, warmup: End::Gets(10), end };
        run(Load::new(&plan, 1), USERS)
    }

    async fn accept_each_user(
        listener: TcpListener,
        answer: fn(&str, &[u8]) -> (StatusCode, &'static str),
    ) -> Result<()> {
        let service = service_fn(async |request: Request<Incoming>| {
            let line = format!("{} {}", request.method(), request.uri());
            let (status, body) = answer(&line, &request.into_body().collect().await?.to_bytes());
            Ok::<_, Failure>(
                Response::builder().status(status).body(Full::new(Bytes::from_static(body.as_bytes())))?,
            )
        });
        let mut connections = Vec::new();
        for _ in 0..USERS {
            connections.push(TokioIo::new(listener.accept().await?.0));
        }
        drop(listener);
        let serving =
            connections.into_iter().map(|one| http1::Builder::new().serve_connection(one, &service));
        Ok(try_join_all(serving).await.map(drop)?)
    }

    /// Every fifth key is absent.
    fn store(line: &str, body: &[u8]) -> (StatusCode, &'static str) {
        let get = line.strip_prefix("GET /get?key=6f1d7a52-3c08-4b9e-a5d4-");
        let set = line.strip_prefix("POST /set?key=6f1d7a52-3c08-4b9e-a5d4-");
        match (get.and_then(|number| number.parse::<u64>().ok()), set) {
            (Some(number), _) if number % 5 == 0 => (StatusCode::NOT_FOUND, ""),
            (Some(_), _) => (StatusCode::OK, VALUE),
            (None, Some(_)) if body == VALUE.as_bytes() => (StatusCode::NO_CONTENT, ""),
            _ => (StatusCode::BAD_REQUEST, ""),
        }
    }

    #[test]
    fn each_user_keeps_its_connection_and_every_answer_counts() {
        let counts = run_against(store).unwrap();
        assert!(counts.hits > 0 && counts.misses > 0 && counts.sets > 0);
        assert!((200..200 + USERS as u64).contains(&(counts.hits + counts.misses)));
        assert_eq!(counts.requests, counts.hits + counts.misses + counts.sets);
        assert_eq!(counts.latency.count(), counts.requests);
    }

    #[test]
    fn a_wrong_value_and_a_failure_of_the_server_are_errors() {
        assert!(run_against(|_, _| (StatusCode::OK, "xyz")).is_err());
        let failed = run_against(|_, _| (StatusCode::INTERNAL_SERVER_ERROR, "no store"));
        assert_eq!(failed.err().unwrap().to_string(), "500 Internal Server Error: no store");
    }

    #[test]
    fn a_refused_connection_is_an_error() {
        let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let (value, end) = (VALUE.into(), End::Gets(1));
        let plan = Plan { address, workload: Workload::Read, keys: KEYS, value, warmup: end, end };
        assert!(run(Load::new(&plan, 1), USERS).is_err());
    }
}
