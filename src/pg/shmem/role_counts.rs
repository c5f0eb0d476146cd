//! Counts each role's use of a limited resource. Membership does not matter: only the exact role counts.
//!
//! The caller passes the limit of a role. It also holds a lock, the same lock for every call on one [`RoleCounts`].

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

/// The maximum number of roles with a count above 0. Any further role is refused until one of these counts falls to 0.
const ROLES: usize = 64;

#[repr(C)]
struct RoleCount {
    /// The role that last had this place.
    role: AtomicU32,
    count: AtomicU32,
}

/// The counts of several roles, in shared memory.
#[repr(C)]
pub struct RoleCounts([RoleCount; ROLES]);

impl RoleCounts {
    /// Raises a role's count by 1. Returns false if the count is already `most`, or if too many other roles have a
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

    /// Lowers a role's count by 1.
    pub fn give_back(&self, role: u32) {
        if let Some(place) = self.find(role) {
            let count = place.count.load(Relaxed);
            place.count.store(count.saturating_sub(1), Relaxed);
        }
    }

    /// Returns the place of a role's count. Returns None if the role never had a place, or if another role took the
    /// place after the count fell to 0.
    fn find(&self, role: u32) -> Option<&RoleCount> {
        self.near(role)
            .find(|place| place.role.load(Relaxed) == role)
    }

    /// Returns all places, beginning with the place that the role's OID selects.
    fn near(&self, role: u32) -> impl Iterator<Item = &RoleCount> {
        (0..ROLES).map(move |step| &self.0[(role as usize).wrapping_add(step) % ROLES])
    }
}
