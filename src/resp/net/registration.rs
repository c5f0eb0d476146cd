//! What a network process is told of a client's socket: that something came, always; that it takes bytes again,
//! only while some wait for it.
//!
//! A unix socket tells of room whenever the other side has read something. Who asks for that without
//! need is woken once more by each reply.

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
    /// From now on the network process is told what comes of this socket.
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

    /// It is told once that the socket takes bytes, at once if it does now.
    pub fn ask_for_room(&self, socket: &Socket) -> io::Result<()> {
        self.ask(socket, Interest::READABLE | Interest::WRITABLE)
    }

    /// It was told.
    pub fn has_room(&self, socket: &Socket) -> io::Result<()> {
        self.ask(socket, Interest::READABLE)
    }

    fn ask(&self, socket: &Socket, interest: Interest) -> io::Result<()> {
        let descriptor = socket.as_raw_fd();
        self.registry
            .reregister(&mut SourceFd(&descriptor), self.token, interest)
    }
}
