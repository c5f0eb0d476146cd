//! A server of the Redis protocol, and a client that encodes requests and parses replies itself.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::{ClientConfig, ClientConnection, StreamOwned};

use crate::cluster::Cluster;
use crate::pool::{self, Recipe};
use crate::stage::Stage;
use crate::wait::{PATIENCE, wait_for};

/// The maximum time that a request may wait for its reply, unless the test holds a lock that the request needs.
const WATCHDOG: Duration = Duration::from_secs(5);

/// The cache of database 0.
pub const CACHE: &str = "public.door";

/// A server of the Redis protocol, and the ways to connect to it.
pub struct Door {
    pub cluster: &'static Cluster,
    pub port: u16,
    pub socket: PathBuf,
}

/// A server's reply.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    Status(String),
    Error(String),
    Integer(i64),
    Bulk(Vec<u8>),
    Null,
    Array(Vec<Reply>),
    /// A map of protocol version 3: keys and values in turn.
    Map(Vec<Reply>),
    Push(Vec<Reply>),
    Other(String),
}

impl Reply {
    pub fn bulk(bytes: impl AsRef<[u8]>) -> Reply {
        Reply::Bulk(bytes.as_ref().to_vec())
    }

    pub fn status(text: &str) -> Reply {
        Reply::Status(text.to_owned())
    }

    /// Returns the message of an error.
    #[track_caller]
    pub fn error(self) -> String {
        match self {
            Reply::Error(words) => words,
            other => panic!("expected an error, got {other:?}"),
        }
    }

    #[track_caller]
    pub fn text(self) -> String {
        match self {
            Reply::Bulk(bytes) => String::from_utf8(bytes).expect("it is text"),
            Reply::Status(text) | Reply::Other(text) => text,
            other => panic!("expected a text, got {other:?}"),
        }
    }
}

impl Door {
    /// Starts a server with a port and a socket, the role `postgres` for clients that do not authenticate, and one
    /// memory cache of bytea.
    pub fn start(conf: &[&str]) -> Door {
        let door = Door::without_cache(conf);
        let mut session = door.cluster.connect("postgres");
        session
            .batch_execute(&format!(
                "CREATE EXTENSION pgcache;
                 SELECT cache_create('{CACHE}', storage => 'memory', value_type => 'bytea')"
            ))
            .expect("a memory cache can be made");
        door
    }

    /// Starts the same server without the extension.
    pub fn without_cache(conf: &[&str]) -> Door {
        Door::of(pool::another(Recipe::door(conf)))
    }

    /// Returns a configured server that is not started. No other test gets this server.
    pub fn fresh(conf: &[&str]) -> Door {
        Door::of(pool::keep(Door::server(
            Cluster::fresh(Stage::current(), &[]),
            conf,
        )))
    }

    /// Configures a server that is not yet started with a port and a socket.
    pub(crate) fn server(mut cluster: Cluster, conf: &[&str]) -> Cluster {
        cluster.port = free_port();
        let socket = socket_of(&cluster);
        cluster.configure(&[
            "shared_preload_libraries = 'pgcache'",
            &format!("pgcache.resp_port = {}", cluster.port),
            "pgcache.resp_listen_addresses = '127.0.0.1'",
            &format!("pgcache.resp_socket = '{}'", socket.display()),
            &format!("pgcache.resp_caches = '{CACHE}'"),
            "pgcache.resp_default_role = 'postgres'",
        ]);
        cluster.configure(conf);
        cluster
    }

    /// Wraps a server that the test created in another way.
    pub fn over(cluster: Cluster, port: u16, socket: PathBuf) -> Door {
        Door {
            cluster: pool::keep(cluster),
            port,
            socket,
        }
    }

    fn of(cluster: &'static Cluster) -> Door {
        Door {
            cluster,
            port: cluster.port,
            socket: socket_of(cluster),
        }
    }

    /// Connects a client to the unix socket once the server listens.
    pub fn client(&self) -> Client {
        wait_for("the door listens", || self.try_client())
    }

    pub fn try_client(&self) -> Option<Client> {
        UnixStream::connect(&self.socket).ok().map(Client::over)
    }

    /// Connects a client over TCP.
    pub fn tcp(&self) -> Client {
        wait_for("the door listens", || self.try_tcp())
    }

    pub fn try_tcp(&self) -> Option<Client> {
        self.try_tcp_at(IpAddr::V4(Ipv4Addr::LOCALHOST))
    }

    /// Connects a client over TLS, or returns the reason why the handshake failed.
    pub fn try_tls(&self, address: IpAddr, config: &Arc<ClientConfig>) -> std::io::Result<Client> {
        let mut socket = TcpStream::connect((address, self.port))?;
        socket.set_patience(Some(Duration::from_secs(60)));
        let mut connection = ClientConnection::new(Arc::clone(config), address.into())
            .expect("the configuration is whole");
        while connection.is_handshaking() {
            connection.complete_io(&mut socket)?;
        }
        let seen = connection.peer_certificates().and_then(<[_]>::first);
        let certificate = seen.map(|seen| seen.to_vec()).unwrap_or_default();
        let mut client = Client::over(StreamOwned::new(connection, socket));
        client.certificate = certificate;
        Ok(client)
    }

    /// Connects a client over TCP to another address of the server.
    pub fn tcp_at(&self, address: IpAddr) -> Client {
        wait_for("the door listens", || self.try_tcp_at(address))
    }

    pub fn try_tcp_at(&self, address: IpAddr) -> Option<Client> {
        TcpStream::connect((address, self.port))
            .ok()
            .map(Client::over)
    }

    /// Returns the pids of the server's processes with this `backend_type` in pg_stat_activity.
    pub fn processes(&self, kind: &str) -> Vec<i32> {
        let mut session = self.cluster.connect("postgres");
        let rows = session
            .query(
                "SELECT pid FROM pg_stat_activity WHERE backend_type = $1",
                &[&kind],
            )
            .expect("the view can be read");
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// Returns the pids as `processes` does, or None if the server is down.
    pub fn processes_if_up(&self, kind: &str) -> Option<Vec<i32>> {
        let mut session = self.cluster.try_connect("postgres", "postgres").ok()?;
        let sql = "SELECT pid FROM pg_stat_activity WHERE backend_type = $1";
        let rows = session.query(sql, &[&kind]).ok()?;
        Some(rows.iter().map(|row| row.get(0)).collect())
    }
}

fn socket_of(cluster: &Cluster) -> PathBuf {
    cluster.folder.join("resp.sock")
}

/// Returns a port that no process uses now.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("there is a free port");
    listener.local_addr().expect("it has an address").port()
}

/// A connection, plain or encrypted.
trait Stream: Read + Write + Send {
    fn set_patience(&self, longest: Option<Duration>);
    fn half_close(&self);
}

impl Stream for UnixStream {
    fn set_patience(&self, longest: Option<Duration>) {
        self.set_read_timeout(longest).expect("a time can be set");
        self.set_write_timeout(longest).expect("a time can be set");
    }

    fn half_close(&self) {
        self.shutdown(std::net::Shutdown::Write)
            .expect("it is open");
    }
}

impl Stream for TcpStream {
    fn set_patience(&self, longest: Option<Duration>) {
        self.set_nodelay(true).expect("an option can be set");
        self.set_read_timeout(longest).expect("a time can be set");
        self.set_write_timeout(longest).expect("a time can be set");
    }

    fn half_close(&self) {
        self.shutdown(std::net::Shutdown::Write)
            .expect("it is open");
    }
}

impl Stream for StreamOwned<ClientConnection, TcpStream> {
    fn set_patience(&self, longest: Option<Duration>) {
        self.sock.set_patience(longest);
    }

    fn half_close(&self) {
        self.sock.half_close();
    }
}

/// A client.
pub struct Client {
    /// The server's certificate, if the connection is encrypted.
    pub certificate: Vec<u8>,
    stream: Box<dyn Stream>,
    unread: Vec<u8>,
    at: usize,
    /// Whether the watchdog is off, because the test delays the server's replies.
    patient: bool,
}

impl Client {
    /// Connects a client to any server.
    pub fn at(socket: &std::path::Path) -> Client {
        Client::over(UnixStream::connect(socket).expect("the server listens"))
    }

    fn over(stream: impl Stream + 'static) -> Client {
        stream.set_patience(Some(PATIENCE));
        Client {
            certificate: Vec::new(),
            stream: Box::new(stream),
            unread: Vec::new(),
            at: 0,
            patient: false,
        }
    }

    /// Disables the watchdog for the next requests, because the test holds a lock or has stopped a process.
    pub fn be_patient(&mut self) {
        self.patient = true;
    }

    /// Sends bytes unchanged. Returns false if the connection has ended.
    pub fn send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    /// Closes the sending half of the connection. The client can still read.
    pub fn half_close(&mut self) {
        self.stream.half_close();
    }

    /// Encodes a request with these arguments.
    pub fn request(arguments: &[&[u8]]) -> Vec<u8> {
        let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
        for argument in arguments {
            bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
            bytes.extend_from_slice(argument);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes
    }

    /// Sends words and reads the reply.
    #[track_caller]
    pub fn ask(&mut self, words: &[&str]) -> Reply {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        self.ask_bytes(&words)
    }

    /// Sends words on a connection that may have ended. Returns the reply, or None if the connection has ended.
    pub fn ask_if_open(&mut self, words: &[&str]) -> Option<Reply> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        match self.send(&Self::request(&words)) {
            true => self.reply_soon(),
            false => None,
        }
    }

    #[track_caller]
    pub fn ask_bytes(&mut self, arguments: &[&[u8]]) -> Reply {
        assert!(
            self.send(&Self::request(arguments)),
            "the connection is gone"
        );
        self.reply_soon().expect("a reply comes")
    }

    /// Reads the reply to a request that was just sent, or the next message, under the watchdog.
    #[track_caller]
    pub fn reply_soon(&mut self) -> Option<Reply> {
        if self.patient {
            return self.reply();
        }
        self.stream.set_patience(Some(WATCHDOG));
        let reply = self.reply();
        self.stream.set_patience(Some(PATIENCE));
        reply
    }

    /// Reads this many bytes, and all bytes that follow within `pause`.
    pub fn bytes_that_come(&mut self, count: usize, pause: Duration) -> String {
        while self.unread.len() - self.at < count {
            self.stream.set_patience(Some(WATCHDOG));
            let mut room = [0; 1 << 10];
            match self.stream.read(&mut room) {
                Ok(read) if read > 0 => self.unread.extend_from_slice(&room[..read]),
                _ => break,
            }
        }
        std::thread::sleep(pause);
        self.is_silent();
        let bytes = self.unread.split_off(self.at);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Returns whether the server has sent nothing that is still unread.
    pub fn is_silent(&mut self) -> bool {
        self.stream.set_patience(Some(Duration::from_millis(1)));
        let mut room = [0; 1 << 10];
        if let Ok(count) = self.stream.read(&mut room) {
            self.unread.extend_from_slice(&room[..count]);
        }
        self.stream.set_patience(Some(PATIENCE));
        self.at == self.unread.len()
    }

    /// Reads the next reply. Returns None if the connection ended.
    pub fn reply(&mut self) -> Option<Reply> {
        let line = self.line()?;
        let (kind, rest) = line.split_at(1);
        let number = || rest.parse::<i64>().expect("a number");
        Some(match kind {
            "+" => Reply::Status(rest.to_owned()),
            "-" => Reply::Error(rest.to_owned()),
            ":" => Reply::Integer(number()),
            "_" => Reply::Null,
            "$" | "=" | "*" | "~" | "%" | ">" if number() < 0 => Reply::Null,
            "$" | "=" => Reply::Bulk(self.bytes(number() as usize)?),
            "*" | "~" => Reply::Array(self.replies(number())?),
            ">" => Reply::Push(self.replies(number())?),
            "%" => Reply::Map(self.replies(2 * number())?),
            _ => Reply::Other(line),
        })
    }

    fn replies(&mut self, count: i64) -> Option<Vec<Reply>> {
        (0..count).map(|_| self.reply()).collect()
    }

    fn line(&mut self) -> Option<String> {
        loop {
            let rest = &self.unread[self.at..];
            if let Some(end) = rest.windows(2).position(|two| two == b"\r\n") {
                let line = String::from_utf8_lossy(&rest[..end]).into_owned();
                self.at += end + 2;
                return Some(line);
            }
            self.read()?;
        }
    }

    fn bytes(&mut self, count: usize) -> Option<Vec<u8>> {
        while self.unread.len() < self.at + count + 2 {
            self.read()?;
        }
        let bytes = self.unread[self.at..self.at + count].to_vec();
        self.at += count + 2;
        Some(bytes)
    }

    fn read(&mut self) -> Option<()> {
        self.unread.drain(..self.at);
        self.at = 0;
        let mut room = [0; 64 << 10];
        match self.stream.read(&mut room) {
            Ok(0) => None,
            Ok(read) => {
                self.unread.extend_from_slice(&room[..read]);
                Some(())
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                panic!("no reply comes")
            }
            // A read with a time limit is not restarted after a signal that stops and continues the process.
            Err(error) if error.kind() == ErrorKind::Interrupted => Some(()),
            Err(error) => {
                eprintln!("the connection has failed: {error}");
                None
            }
        }
    }

    /// Reads until the server ends the connection.
    pub fn wait_for_end(&mut self) {
        while self.read().is_some() {
            self.at = self.unread.len();
        }
    }
}
