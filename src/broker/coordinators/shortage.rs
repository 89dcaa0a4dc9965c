//! How long a coordinator whose log has no room rests before the log is read again.
//!
//! Must not know logs or disks. Invariants: each further rest of an episode is longer, up to a limit; an episode begins once and ends
//! once.

use std::time::Duration;

const REST_MIN: Duration = Duration::from_millis(250);
const REST_MAX: Duration = Duration::from_secs(5);

/// Whether a log lacks room, as far as appends have told.
#[derive(Debug, Default)]
pub(super) struct Shortage {
    /// The last rest; there is none when the last append found room.
    rest: Option<Duration>,
    is_owed: bool,
}

impl Shortage {
    pub(super) fn lasts(&self) -> bool {
        self.rest.is_some()
    }

    /// An append found no room. Says whether an episode begins with that.
    pub(super) fn met(&mut self) -> bool {
        let before = self.rest;
        self.rest = Some(before.map_or(REST_MIN, |rest| (rest * 2).min(REST_MAX)));
        self.is_owed = true;
        before.is_none()
    }

    /// Records were appended. Says whether that ends an episode.
    pub(super) fn over(&mut self) -> bool {
        self.rest.take().is_some()
    }

    /// The rest that is due, if no append has found room since; once.
    pub(super) fn take_rest(&mut self) -> Option<Duration> {
        std::mem::take(&mut self.is_owed).then_some(self.rest).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_become_longer_until_there_is_room() {
        let mut shortage = Shortage::default();
        for _ in 0..2 {
            assert!(!shortage.over() && !shortage.lasts());
            let mut rests = Vec::new();
            for count in 0..7 {
                assert_eq!(shortage.met(), count == 0);
                rests.push(shortage.take_rest().expect("a rest").as_millis());
                assert_eq!(shortage.take_rest(), None, "what else is lost needs no rest");
            }
            assert_eq!(rests, [250, 500, 1_000, 2_000, 4_000, 5_000, 5_000]);
            assert!(shortage.lasts() && shortage.over());
        }
    }
}
