//! Checks whether two holders ever held a lock at the same time.

/// One hold of a lock. It begins just after the lock was acquired and ends just before the lock was released, so two
/// overlapping holds show a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hold {
    pub holder: usize,
    pub from: u64,
    pub to: u64,
}

/// Returns two holds that overlap, or None if none do.
pub fn overlap(holds: &[Hold]) -> Option<(Hold, Hold)> {
    let mut by_time = holds.to_vec();
    by_time.sort_by_key(|hold| (hold.from, hold.to));
    let mut longest = *by_time.first()?;
    for &hold in &by_time[1..] {
        if hold.from < longest.to {
            return Some((longest, hold));
        }
        if hold.to > longest.to {
            longest = hold;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(holder: usize, from: u64, to: u64) -> Hold {
        Hold { holder, from, to }
    }

    #[test]
    fn holds_in_turn_are_accepted_in_any_order_of_report() {
        assert_eq!(
            overlap(&[hold(2, 20, 30), hold(1, 0, 10), hold(1, 30, 31)]),
            None
        );
        assert_eq!(overlap(&[]), None);
    }

    #[test]
    fn two_holders_at_once_are_caught() {
        let found = overlap(&[hold(1, 0, 10), hold(2, 9, 12)]);
        assert_eq!(found, Some((hold(1, 0, 10), hold(2, 9, 12))));
    }

    #[test]
    fn a_short_hold_in_between_does_not_hide_a_long_one() {
        assert!(overlap(&[hold(1, 0, 100), hold(2, 50, 60)]).is_some());
        assert!(overlap(&[hold(1, 0, 100), hold(2, 100, 101), hold(3, 99, 100)]).is_some());
    }
}
