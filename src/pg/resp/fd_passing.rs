//! Passes a client's connection from the first network process, which accepts it, to another network process. Sends the
//! connection's descriptor in a datagram.
//!
//! Each network process except the first has an inbox: a unix socket in `pg_stat_tmp`. This folder of the data
//! directory exists in every version, only the server's user can reach it, and no backup includes it. A network process
//! opens its inbox itself, so that no other process of the server inherits the inbox or the connections that arrive in
//! it. If a network process ends, the kernel closes the connections that are left in its inbox.

use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;

use socket2::SockAddr;

use crate::pg::resp::system;

/// Returns the path of a network process's inbox, relative to the data directory, which is the working directory of
/// every process.
fn path(network: usize) -> PathBuf {
    format!("pg_stat_tmp/pgcache_resp_network.{network}").into()
}

/// Room for a control message with one descriptor. 64 bytes are more than any system needs.
#[repr(C, align(16))]
struct Control([u8; 64]);

fn control_length() -> u32 {
    // SAFETY: computes a number.
    unsafe { libc::CMSG_SPACE(size_of::<libc::c_int>() as u32) }
}

/// Makes a message header for one piece of data and one descriptor.
fn message(piece: &mut libc::iovec, control: &mut Control) -> libc::msghdr {
    // SAFETY: zeros are a message without an address and without flags.
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_iov = piece;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control_length() as _;
    message
}

fn piece(word: &mut [u8; 8]) -> libc::iovec {
    libc::iovec {
        iov_base: word.as_mut_ptr().cast(),
        iov_len: word.len(),
    }
}

/// The socket through which connections are sent.
pub struct Outbox(UnixDatagram);

impl Outbox {
    pub fn new() -> io::Result<Outbox> {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        Ok(Outbox(socket))
    }

    /// Sends a connection and a number to a network process. Fails at once if the inbox has no room now.
    pub fn send(&self, network: usize, number: u64, socket: BorrowedFd<'_>) -> io::Result<()> {
        let address = SockAddr::unix(path(network))?;
        let mut word = number.to_le_bytes();
        let mut control = Control([0; 64]);
        let mut piece = piece(&mut word);
        let mut message = message(&mut piece, &mut control);
        message.msg_name = address.as_ptr().cast_mut().cast();
        message.msg_namelen = address.len();
        // SAFETY: the control message has room for the header and one descriptor, which the code fills in; everything
        // that the message points to lives through the call, which only reads it.
        let sent = unsafe {
            let header = libc::CMSG_FIRSTHDR(&message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(size_of::<libc::c_int>() as u32) as _;
            libc::CMSG_DATA(header)
                .cast::<libc::c_int>()
                .write_unaligned(socket.as_raw_fd());
            libc::sendmsg(self.0.as_raw_fd(), &message, libc::MSG_NOSIGNAL)
        };
        match sent {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }
}

/// The socket through which a network process receives connections.
pub struct Inbox {
    socket: UnixDatagram,
    path: PathBuf,
}

/// A received connection and its number. `socket` is None if the descriptor was lost on the way.
pub struct Handed {
    pub number: u64,
    pub socket: Option<OwnedFd>,
}

impl Inbox {
    /// Opens the inbox of this process, whose index is `network`, and removes its predecessor's inbox.
    pub fn open(network: usize) -> io::Result<Inbox> {
        let path = path(network);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let socket = system::private(|| UnixDatagram::bind(&path))?;
        let inbox = Inbox { socket, path };
        inbox.socket.set_nonblocking(true)?;
        Ok(inbox)
    }

    /// Takes the next connection; returns None if the inbox is empty.
    pub fn take(&self) -> io::Result<Option<Handed>> {
        let mut word = [0; 8];
        let mut control = Control([0; 64]);
        let mut piece = piece(&mut word);
        let mut message = message(&mut piece, &mut control);
        // SAFETY: the message has room for a word and one descriptor, which live through the call. The system closes
        // any further descriptors.
        let read = unsafe {
            libc::recvmsg(
                self.socket.as_raw_fd(),
                &mut message,
                libc::MSG_CMSG_CLOEXEC,
            )
        };
        if read < 0 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock => Ok(None),
                _ => Err(error),
            };
        }
        // SAFETY: the system has filled the message, so its control messages are valid, and this process owns a
        // descriptor in one of them.
        let socket = unsafe {
            let header = libc::CMSG_FIRSTHDR(&message);
            let has_one = !header.is_null()
                && (*header).cmsg_level == libc::SOL_SOCKET
                && (*header).cmsg_type == libc::SCM_RIGHTS;
            has_one.then(|| {
                let descriptor = libc::CMSG_DATA(header).cast::<libc::c_int>();
                OwnedFd::from_raw_fd(descriptor.read_unaligned())
            })
        };
        Ok(Some(Handed {
            number: u64::from_le_bytes(word),
            socket,
        }))
    }
}

impl AsFd for Inbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        // A failure is ignored, because the successor removes the file.
        let _ = fs::remove_file(&self.path);
    }
}
