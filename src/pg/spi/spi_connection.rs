//! Opens and closes the connection to Postgres' server programming interface (SPI), and reports its failures.

use pgrx::pg_sys;

/// Keeps SPI connected while it lives.
pub(in crate::pg) struct Connection;

impl Connection {
    pub(in crate::pg) fn open() -> Connection {
        // SAFETY: a connection can always be opened inside a transaction; drop closes it.
        unsafe { pg_sys::SPI_connect() };
        Connection
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // An error that unwinds ends in an abort, which cleans up SPI itself, in the right order.
        if !std::thread::panicking() {
            // SAFETY: this is the innermost connection, since guards are dropped in order.
            unsafe { pg_sys::SPI_finish() };
        }
    }
}

/// Returns the current memory context. Before SPI is connected, this is the caller's context.
pub(in crate::pg) fn current_context() -> pg_sys::MemoryContext {
    // SAFETY: a variable of this process, which is set whenever pgcache's code runs.
    unsafe { pg_sys::CurrentMemoryContext }
}

/// Raises an error that names the SPI function. SPI reports misuse by return codes, so each of them means a defect in
/// pgcache.
pub(in crate::pg) fn failed(call: &str) -> ! {
    pgrx::error!("{call} failed")
}
