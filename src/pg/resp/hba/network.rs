//! Reads from the operating system the values with which lines of pg_hba.conf and pg_ident.conf are compared: addresses
//! of this machine, host names, and names of system users.
//!
//! A lookup of a host name may query a remote name server, and blocks the caller until the reply.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::net::{IpAddr, ToSocketAddrs};

use super::hba_files::{address_of, sockaddr_of};
use crate::pg::memory::unguarded::guarded;
use crate::pg::version::hba_layout::Address;

unsafe extern "C-unwind" {
    fn pg_foreach_ifaddr(
        callback: unsafe extern "C-unwind" fn(*const Address, *const Address, *mut c_void),
        data: *mut c_void,
    ) -> c_int;
}

unsafe extern "C" {
    fn getnameinfo(
        address: *const Address,
        length: u32,
        host: *mut c_char,
        host_room: u32,
        service: *mut c_char,
        service_room: u32,
        flags: c_int,
    ) -> c_int;
    fn getpwuid_r(
        user: u32,
        entry: *mut Passwd,
        buffer: *mut c_char,
        room: usize,
        found: *mut *mut Passwd,
    ) -> c_int;
}

/// `struct passwd`, which begins with the name.
#[repr(C, align(16))]
struct Passwd {
    name: *const c_char,
    rest: [u8; 248],
}

/// From netdb.h: the flag that makes the lookup of an address without a name fail.
const NI_NAMEREQD: c_int = 8;
/// From netdb.h: the maximum length of a name.
const NI_MAXHOST: usize = 1025;
/// The size of `struct sockaddr_in`.
const SOCKADDR_IN: u32 = 16;
/// The size of `struct sockaddr_in6`.
const SOCKADDR_IN6: u32 = 28;
/// `ERANGE`: the buffer is too small.
const ERANGE: c_int = 34;

/// An address of this machine, with the mask of its network.
#[derive(Clone, Copy)]
pub struct Interface {
    pub address: IpAddr,
    pub mask: IpAddr,
}

/// The maximum number of interfaces in the list. The list has a fixed size, because it is filled inside `guarded`,
/// where an error would skip the destructor of a Vec.
const INTERFACES: usize = 256;

struct Found {
    interfaces: [Option<Interface>; INTERFACES],
    count: usize,
}

/// Returns the addresses of this machine; an empty list if the system cannot list them.
pub fn interfaces() -> Vec<Interface> {
    let mut found = Found {
        interfaces: [None; INTERFACES],
        count: 0,
    };
    let data = (&raw mut found).cast();
    // SAFETY: inside `guarded` an error jumps over nothing that must be dropped; Postgres calls the callback with
    // `data`, and only before the call returns.
    let listed = unsafe { guarded(|| pg_foreach_ifaddr(add_interface, data)) };
    match listed < 0 {
        true => Vec::new(),
        false => found.interfaces.into_iter().flatten().collect(),
    }
}

/// Adds an interface to the list. Postgres calls this for each interface.
unsafe extern "C-unwind" fn add_interface(
    address: *const Address,
    mask: *const Address,
    data: *mut c_void,
) {
    // SAFETY: `data` is the pointer that `interfaces` has passed; the addresses are NULL or as long as their family
    // says, and the code reads no more of them.
    unsafe {
        let found: &mut Found = &mut *data.cast();
        if let (Some(address), Some(mask)) = (read(address), read(mask))
            && let Some(place) = found.interfaces.get_mut(found.count)
        {
            *place = Some(Interface { address, mask });
            found.count += 1;
        }
    }
}

/// # Safety
/// `address` is NULL, or a `sockaddr` that is as long as its family says.
unsafe fn read(address: *const Address) -> Option<IpAddr> {
    if address.is_null() {
        return None;
    }
    let mut copy = Address {
        family: 0,
        bytes: [0; 126],
    };
    // SAFETY: the family comes first; an IPv6 address has 28 bytes, every other address at least 16.
    unsafe {
        let family = address.cast::<u16>().read_unaligned();
        let length = match family {
            10 => SOCKADDR_IN6,
            _ => SOCKADDR_IN,
        };
        let to: *mut u8 = (&raw mut copy).cast();
        std::ptr::copy_nonoverlapping(address.cast::<u8>(), to, length as usize);
    }
    address_of(&copy)
}

/// Returns the host name of an address if the name also resolves to the address; otherwise None. The check is
/// necessary, because the owner of an address can give it any name.
pub fn host_name(address: IpAddr) -> Option<String> {
    let name = claimed_name(address)?;
    let addresses = (name.as_str(), 0).to_socket_addrs().ok()?;
    let mut addresses = addresses.map(|found| found.ip());
    addresses.any(|found| found == address).then_some(name)
}

fn claimed_name(address: IpAddr) -> Option<String> {
    let socket_address = sockaddr_of(address);
    let length = match address {
        IpAddr::V4(_) => SOCKADDR_IN,
        IpAddr::V6(_) => SOCKADDR_IN6,
    };
    let mut name = [0_u8; NI_MAXHOST];
    // SAFETY: the address is as long as its family says; the call receives the room for the name, which ends with a NUL
    // if the call succeeds.
    let failed = unsafe {
        getnameinfo(
            &raw const socket_address,
            length,
            name.as_mut_ptr().cast(),
            NI_MAXHOST as u32,
            std::ptr::null_mut(),
            0,
            NI_NAMEREQD,
        )
    };
    if failed != 0 {
        return None;
    }
    let name = CStr::from_bytes_until_nul(&name).ok()?;
    Some(name.to_str().ok()?.to_owned())
}

/// Returns whether a host name matches the name in a line, where a leading dot denotes all names in a domain.
pub fn is_named(pattern: &[u8], name: &str) -> bool {
    let name = name.as_bytes();
    match pattern.first() {
        Some(b'.') => name
            .len()
            .checked_sub(pattern.len())
            .is_some_and(|start| name[start..].eq_ignore_ascii_case(pattern)),
        _ => name.eq_ignore_ascii_case(pattern),
    }
}

/// Returns the name of a system user; None if the system has no such user or cannot look it up.
pub fn user_name(user: u32) -> Option<Vec<u8>> {
    let mut room = 1024;
    while room <= 1 << 20 {
        let mut buffer = vec![0_u8; room];
        let mut entry = Passwd {
            name: std::ptr::null(),
            rest: [0; 248],
        };
        let mut found = std::ptr::null_mut();
        // SAFETY: the entry has more room than any system needs, and the call receives the size of the buffer. If it
        // finds an entry, the name is in the buffer, and the code copies it.
        unsafe {
            let buffer = buffer.as_mut_ptr().cast();
            match getpwuid_r(user, &raw mut entry, buffer, room, &raw mut found) {
                0 if found.is_null() => return None,
                0 => return Some(CStr::from_ptr((*found).name).to_bytes().to_vec()),
                ERANGE => room *= 4,
                _ => return None,
            }
        }
    }
    None
}

/// Returns whether an address is in a network; false if their families differ.
pub fn is_within(address: IpAddr, network: IpAddr, mask: IpAddr) -> bool {
    match (address, network, mask) {
        (IpAddr::V4(address), IpAddr::V4(network), IpAddr::V4(mask)) => {
            (address.to_bits() ^ network.to_bits()) & mask.to_bits() == 0
        }
        (IpAddr::V6(address), IpAddr::V6(network), IpAddr::V6(mask)) => {
            (address.to_bits() ^ network.to_bits()) & mask.to_bits() == 0
        }
        _ => false,
    }
}
