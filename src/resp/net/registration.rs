//! Registers a client's socket with epoll: always for input, and for output only while replies wait for room in the
//! socket.
//!
//! A unix socket that is registered for output reports an event each time that the peer reads. If it stayed registered
//! for output, each reply would wake the network process once more.

use std::io;
use std::os::fd::AsRawFd;
use std::rc::Rc;

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use socket2::Socket;

/// A socket in the epoll set of its network process.
pub struct Registration {
    registry: Rc<Registry>,
    token: Token,
}

impl Registration {
    /// Registers the socket, so that the network process is notified of its input.
    pub fn begin(
        registry: &Rc<Registry>,
        token: Token,
        socket: &Socket,
    ) -> io::Result<Registration> {
        let descriptor = socket.as_raw_fd();
        registry.register(&mut SourceFd(&descriptor), token, Interest::READABLE)?;
        Ok(Registration {
            registry: Rc::clone(registry),
            token,
        })
    }

    /// Requests one notification that the socket accepts bytes. It arrives at once if the socket accepts bytes now.
    pub fn request_room(&self, socket: &Socket) -> io::Result<()> {
        self.register(socket, Interest::READABLE | Interest::WRITABLE)
    }

    /// Ends the request for room after the notification.
    pub fn note_room(&self, socket: &Socket) -> io::Result<()> {
        self.register(socket, Interest::READABLE)
    }

    fn register(&self, socket: &Socket, interest: Interest) -> io::Result<()> {
        let descriptor = socket.as_raw_fd();
        self.registry
            .reregister(&mut SourceFd(&descriptor), self.token, interest)
    }
}
