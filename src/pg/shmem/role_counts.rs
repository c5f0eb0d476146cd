//! Counts how much of a limited resource each role has, by the exact role.
//!
//! The caller passes the limit of a role. It also holds a lock: all counts of one table change under one lock.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

/// The maximum number of roles with a count above 0. A further role gets nothing until the count of one of them
/// falls to 0.
const ROLES: usize = 64;

#[repr(C)]
struct RoleCount {
    /// The role that was counted here last.
    role: AtomicU32,
    count: AtomicU32,
}

#[repr(C)]
pub struct RoleCounts([RoleCount; ROLES]);

impl RoleCounts {
    /// Counts one more for a role. Returns false if the role already has `most`, or too many other roles have a
    /// count.
    pub fn take(&self, role: u32, most: usize) -> bool {
        let free = |place: &&RoleCount| place.count.load(Relaxed) == 0;
        let place = self.find(role).or_else(|| self.near(role).find(free));
        let Some(place) = place else {
            return false;
        };
        let count = match place.role.load(Relaxed) == role {
            true => place.count.load(Relaxed),
            false => 0,
        };
        if count as usize >= most {
            return false;
        }
        place.role.store(role, Relaxed);
        place.count.store(count + 1, Relaxed);
        true
    }

    /// Counts one less for a role.
    pub fn give_back(&self, role: u32) {
        if let Some(place) = self.find(role) {
            let count = place.count.load(Relaxed);
            place.count.store(count.saturating_sub(1), Relaxed);
        }
    }

    /// Finds the place of a role's count. None if another role has taken the place after the count fell to 0.
    fn find(&self, role: u32) -> Option<&RoleCount> {
        self.near(role)
            .find(|place| place.role.load(Relaxed) == role)
    }

    /// Returns all places, beginning with the one that the role's oid selects.
    fn near(&self, role: u32) -> impl Iterator<Item = &RoleCount> {
        (0..ROLES).map(move |step| &self.0[(role as usize).wrapping_add(step) % ROLES])
    }
}
