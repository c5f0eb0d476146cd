//! Starts a connection: reads its first byte, which shows whether the client uses TLS, and then takes the steps of the
//! TLS handshake.
//!
//! A step may take a millisecond for a long RSA key. So after each step other clients get as much time as the step
//! took, and handshakes take at most half of the network process's time.

use std::io::{ErrorKind, Read};
use std::time::Instant;

use pgcache_resp::Writer;

use crate::resp::net::tls::{HELLO, Shaken};
use crate::resp::session::connection::{Connection, Wire};
use crate::resp::session::progress::Progress;
use crate::resp::shared::Core;

/// Advances a connection that cannot receive requests yet, and returns its progress. Returns None if the connection can
/// receive requests.
pub fn begin(core: &mut Core, client: &mut Connection) -> Option<Progress> {
    match &client.wire {
        Wire::Plain => None,
        Wire::Unknown => recognise(core, client),
        Wire::Encrypted(encryption) if encryption.is_shaking() => shake(core, client),
        Wire::Encrypted(_) => None,
    }
}

fn recognise(core: &mut Core, client: &mut Connection) -> Option<Progress> {
    let mut first = [0];
    match client.socket.read(&mut first) {
        Ok(0) => return Some(Progress::Close),
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::Interrupted => return Some(Progress::More),
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            client.readable = false;
            return Some(Progress::Done);
        }
        Err(_) => return Some(Progress::Close),
    }
    if first == [HELLO] {
        let Some(mut encryption) = core.tls.begin() else {
            return Some(Progress::Close);
        };
        if encryption.greet().is_err() {
            return Some(Progress::Close);
        }
        client.wire = Wire::Encrypted(Box::new(encryption));
        client.session.origin.peer.tls = true;
        return shake(core, client);
    }
    client.wire = Wire::Plain;
    if core.tls.is_required() {
        let mut words = Writer::new(client.session.protocol, 1 << 10);
        words.error(&[b"ERR this port accepts only encrypted connections: connect with TLS"]);
        client.closing = true;
        // Unread input would make the kernel discard the error.
        let _ = client.socket.read(&mut [0; 4 << 10]);
        return Some(match client.send(words.as_bytes()) {
            Ok(()) if client.unsent() > 0 => Progress::Done,
            _ => Progress::Close,
        });
    }
    if !client.keep(&first) {
        return Some(Progress::Close);
    }
    None
}

fn shake(core: &mut Core, client: &mut Connection) -> Option<Progress> {
    if !client.readable {
        return Some(Progress::Done);
    }
    if !core.handshakes.has_come() {
        return Some(Progress::More);
    }
    let began = Instant::now();
    let shaken = match &mut client.wire {
        Wire::Encrypted(encryption) => encryption.shake(&client.socket),
        _ => return None,
    };
    core.handshakes.took(began.elapsed());
    match shaken {
        Ok(Shaken::Done) => {
            if let Wire::Encrypted(encryption) = &client.wire {
                client.session.origin.certificate = encryption.certificate();
            }
            None
        }
        Ok(Shaken::More) => Some(Progress::More),
        Ok(Shaken::Waits) => {
            client.readable = false;
            Some(Progress::Done)
        }
        Err(_) => {
            core.counters.failed_handshakes += 1;
            Some(Progress::Close)
        }
    }
}
