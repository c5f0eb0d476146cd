//! How much each role has of something that roles share, counted by the exact role.
//!
//! Not how much a role may have, which the caller says. Access rule: all counts of one table change under one
//! lock of the caller's.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

/// Roles that have something at the same time, at most. One more gets nothing until another has given back
/// all that it had.
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
    /// Counts one more for a role; false where it has as many as `most`, or too many other roles have some.
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

    /// Counts one less.
    pub fn give_back(&self, role: u32) {
        if let Some(place) = self.find(role) {
            let count = place.count.load(Relaxed);
            place.count.store(count.saturating_sub(1), Relaxed);
        }
    }

    /// Where a role was counted last, unless another role has come there since it had nothing.
    fn find(&self, role: u32) -> Option<&RoleCount> {
        self.near(role)
            .find(|place| place.role.load(Relaxed) == role)
    }

    /// All places, from that on to which the role points.
    fn near(&self, role: u32) -> impl Iterator<Item = &RoleCount> {
        (0..ROLES).map(move |step| &self.0[(role as usize).wrapping_add(step) % ROLES])
    }
}
