//! Listens on TCP addresses and the unix socket. The first network process opens the listeners. If the postmaster
//! opened them, all other processes of the server would inherit them and keep the port in use.

use std::fs;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use socket2::{Domain, SockAddr, Socket, TcpKeepalive, Type};

use crate::guc::resp as settings;
use crate::pg::resp::system;
use crate::resp::auth::{Peer, PeerAddress};

/// The number of connections that the kernel is asked to queue between two turns of the event loop; it may queue fewer.
const BACKLOG: i32 = 4096;

/// A socket that clients connect to.
pub struct Listener {
    pub socket: Socket,
    /// The name in the log and in CLIENT LIST.
    pub name: String,
    /// The file of a unix socket: its path, device and inode.
    file: Option<(PathBuf, u64, u64)>,
    /// Whether connections may wait to be accepted.
    pub ready: bool,
}

/// An accepted connection with its socket options set and its addresses known.
pub struct Arrived {
    pub socket: Socket,
    pub peer: Peer,
    pub address: String,
    pub local_address: String,
}

/// An address to listen on.
#[derive(Clone, PartialEq, Eq)]
pub enum Endpoint {
    Tcp(SocketAddr),
    /// A host name that could not be resolved.
    Unknown(String),
    Unix(PathBuf),
}

/// Returns the endpoints that the settings name.
pub fn endpoints() -> Vec<Endpoint> {
    let mut endpoints = Vec::new();
    if let Some(port) = settings::port() {
        for name in settings::listen_addresses() {
            let found = addresses(&name, port);
            if found.is_empty() {
                endpoints.push(Endpoint::Unknown(name));
            }
            for address in found {
                let endpoint = Endpoint::Tcp(address);
                if !endpoints.contains(&endpoint) {
                    endpoints.push(endpoint);
                }
            }
        }
    }
    endpoints.extend(settings::socket().map(|path| Endpoint::Unix(path.into())));
    endpoints
}

fn addresses(name: &str, port: u16) -> Vec<SocketAddr> {
    let all = match name {
        "*" => ["::", "0.0.0.0"].as_slice(),
        "" => [].as_slice(),
        name => return resolve(name, port),
    };
    all.iter().flat_map(|name| resolve(name, port)).collect()
}

fn resolve(name: &str, port: u16) -> Vec<SocketAddr> {
    let name = name.trim_start_matches('[').trim_end_matches(']');
    (name, port)
        .to_socket_addrs()
        .map_or_else(|_| Vec::new(), Iterator::collect)
}

impl Endpoint {
    /// Returns the name for the log.
    pub fn name(&self) -> String {
        match self {
            Endpoint::Tcp(address) => address.to_string(),
            Endpoint::Unknown(name) => name.clone(),
            Endpoint::Unix(path) => path.display().to_string(),
        }
    }

    /// Begins to listen.
    pub fn open(&self) -> io::Result<Listener> {
        let (socket, file) = match self {
            Endpoint::Tcp(address) => (listen_tcp(*address)?, None),
            Endpoint::Unknown(_) => return Err(io::ErrorKind::NotFound.into()),
            Endpoint::Unix(path) => {
                let (socket, file) = listen_unix(path)?;
                (socket, Some(file))
            }
        };
        socket.set_nonblocking(true)?;
        Ok(Listener {
            socket,
            name: self.name(),
            file,
            ready: true,
        })
    }
}

fn listen_tcp(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    if address.is_ipv6() {
        // IPv4 addresses have their own listener.
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket)
}

/// Listens on a unix socket. Removes a socket file that an earlier run has left and on which no process listens.
/// Touches no other file.
fn listen_unix(path: &PathBuf) -> io::Result<(Socket, (PathBuf, u64, u64))> {
    if let Ok(found) = fs::symlink_metadata(path) {
        if !found.file_type().is_socket() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        match UnixStream::connect(path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                fs::remove_file(path)?
            }
            _ => return Err(io::ErrorKind::AddrInUse.into()),
        }
    }
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    let address = SockAddr::unix(path)?;
    system::private(|| socket.bind(&address))?;
    if let Some(name) = settings::socket_group() {
        let group = system::group(&name).ok_or(io::ErrorKind::InvalidInput)?;
        chown(path, None, Some(group))?;
    }
    fs::set_permissions(path, fs::Permissions::from_mode(settings::socket_mode()))?;
    socket.listen(BACKLOG)?;
    let made = fs::symlink_metadata(path)?;
    Ok((socket, (path.clone(), made.dev(), made.ino())))
}

impl Listener {
    /// Accepts the next connection. Returns None if no connection waits, or if the attempt must be repeated; only in
    /// the second case does `ready` stay set.
    pub fn accept(&mut self) -> io::Result<Option<Socket>> {
        match self.socket.accept() {
            Ok((socket, _)) => Ok(Some(socket)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.ready = false;
                Ok(None)
            }
            // The client closed the connection before it was accepted.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Arrived {
    /// Prepares a connection in the network process that serves it.
    pub fn prepare(socket: Socket) -> io::Result<Arrived> {
        let address = socket.peer_addr()?;
        socket.set_nonblocking(true)?;
        let tls = false;
        if let Some(address) = address.as_socket() {
            socket.set_tcp_nodelay(true)?;
            if let Some(time) = settings::keepalive() {
                let keepalive = TcpKeepalive::new()
                    .with_time(time)
                    .with_interval(time / 3)
                    .with_retries(3);
                socket.set_tcp_keepalive(&keepalive)?;
            }
            let local = socket.local_addr().ok().and_then(|local| local.as_socket());
            return Ok(Arrived {
                socket,
                peer: Peer {
                    address: PeerAddress::Tcp(address),
                    tls,
                },
                address: address.to_string(),
                local_address: local.map_or_else(String::new, |local| local.to_string()),
            });
        }
        let uid = system::peer_user(socket.as_fd()).ok_or(io::ErrorKind::PermissionDenied)?;
        let name = format!("{}:0", settings::socket().unwrap_or_default());
        Ok(Arrived {
            socket,
            peer: Peer {
                address: PeerAddress::Unix { uid },
                tls,
            },
            address: name.clone(),
            local_address: name,
        })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // A listener removes its file, unless another listener has replaced the file.
        if let Some((path, device, number)) = &self.file
            && let Ok(found) = fs::symlink_metadata(path)
            && (found.dev(), found.ino()) == (*device, *number)
        {
            // If the file cannot be removed now, the next listener removes it.
            let _ = fs::remove_file(path);
        }
    }
}
