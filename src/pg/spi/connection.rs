//! The connection to Postgres' server programming interface (SPI), and what its misuse is answered with.

use pgrx::pg_sys;

/// SPI is connected as long as this lives.
pub(in crate::pg) struct Connection;

impl Connection {
    pub(in crate::pg) fn open() -> Connection {
        // SAFETY: always possible inside a transaction; it is paired by drop.
        unsafe { pg_sys::SPI_connect() };
        Connection
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // An error that unwinds ends in an abort, which cleans SPI up itself, in the right order.
        if !std::thread::panicking() {
            // SAFETY: this is the innermost connection, since guards are dropped in order.
            unsafe { pg_sys::SPI_finish() };
        }
    }
}

pub(in crate::pg) fn current_context() -> pg_sys::MemoryContext {
    // SAFETY: set in every backend.
    unsafe { pg_sys::CurrentMemoryContext }
}

/// SPI reports misuse by codes; each would be a mistake of ours.
pub(in crate::pg) fn failed(call: &str) -> ! {
    pgrx::error!("{call} failed")
}
