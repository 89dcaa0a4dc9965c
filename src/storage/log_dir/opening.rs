//! Which logs of a log directory are still to be opened, and how much of them is to be checked. Must not know who opens them.
//!
//! Invariant: no disk is waited for while anything here is locked, so that somebody who asks is answered however much hangs.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use crate::storage::locked;
use crate::storage::log::{Amount, Unchecked};

/// What is left of a directory that is being opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// Logs that are not open yet.
    pub logs: u64,
    /// Those of them of which it is not known how much there is to check.
    pub uncounted: u64,
    pub unchecked: Amount,
}

#[derive(Debug, Default)]
pub(super) struct Opening {
    state: Mutex<State>,
    /// Held by whoever counts.
    counting: Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    /// With how much there is to check, once it was counted.
    waiting: HashMap<PathBuf, Option<Amount>>,
    begun: HashMap<PathBuf, Arc<Unchecked>>,
}

/// A log that is being opened, for as long as this is there.
pub(super) struct Begun<'a> {
    opening: &'a Opening,
    path: PathBuf,
    unchecked: Arc<Unchecked>,
}

impl Opening {
    /// A log is going to be opened.
    pub fn expect(&self, path: PathBuf) {
        locked(&self.state).waiting.insert(path, None);
    }

    pub fn begin(&self, path: PathBuf) -> Begun<'_> {
        let unchecked = Arc::<Unchecked>::default();
        let mut state = locked(&self.state);
        state.waiting.remove(&path);
        state.begun.insert(path.clone(), unchecked.clone());
        Begun { opening: self, path, unchecked }
    }

    /// Nothing more is going to be opened of what was expected.
    pub fn end(&self) {
        locked(&self.state).waiting.clear();
    }

    pub fn left(&self) -> Left {
        let state = locked(&self.state);
        let mut left = Left { logs: (state.waiting.len() + state.begun.len()) as u64, ..Left::default() };
        for counted in state.waiting.values() {
            match counted {
                Some(amount) => left.unchecked += *amount,
                None => left.uncounted += 1,
            }
        }
        for unchecked in state.begun.values() {
            left.unchecked += unchecked.left();
        }
        left
    }

    /// Counts what waits and was not counted. Leaves it to whoever is at it already.
    pub fn count(&self, count: impl Fn(&PathBuf) -> Option<Amount>) {
        let Some(_counting) = self.try_to_count() else { return };
        let state = locked(&self.state);
        let uncounted = state.waiting.iter().filter(|(_, counted)| counted.is_none());
        let uncounted: Vec<PathBuf> = uncounted.map(|(path, _)| path.clone()).collect();
        drop(state);
        for path in uncounted {
            let is_waiting = locked(&self.state).waiting.contains_key(&path);
            if let Some(amount) = is_waiting.then(|| count(&path)).flatten()
                && let Some(counted) = locked(&self.state).waiting.get_mut(&path)
            {
                *counted = Some(amount);
            }
        }
    }

    fn try_to_count(&self) -> Option<MutexGuard<'_, ()>> {
        match self.counting.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl Begun<'_> {
    pub fn unchecked(&self) -> &Arc<Unchecked> {
        &self.unchecked
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        locked(&self.opening.state).begun.remove(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn amount(segments: u64, bytes: u64) -> Amount {
        Amount { segments, bytes }
    }

    #[test]
    fn what_is_left_is_what_waits_and_what_is_in_work() {
        let opening = Opening::default();
        assert_eq!(opening.left(), Left::default());
        for path in ["a", "b", "c"] {
            opening.expect(path.into());
        }
        assert_eq!(opening.left(), Left { logs: 3, uncounted: 3, unchecked: amount(0, 0) });
        opening.count(|path| (path.to_str() != Some("c")).then_some(amount(2, 500)));
        assert_eq!(opening.left(), Left { logs: 3, uncounted: 1, unchecked: amount(4, 1000) });
        // What is in work knows better than who has counted.
        let a = opening.begin("a".into());
        a.unchecked().set(amount(1, 90));
        assert_eq!(opening.left(), Left { logs: 3, uncounted: 1, unchecked: amount(3, 590) });
        a.unchecked().checked(40);
        assert_eq!(opening.left(), Left { logs: 3, uncounted: 1, unchecked: amount(3, 550) });
        drop(a);
        assert_eq!(opening.left(), Left { logs: 2, uncounted: 1, unchecked: amount(2, 500) });
        let c = opening.begin("c".into());
        opening.end();
        assert_eq!(opening.left(), Left { logs: 1, uncounted: 0, unchecked: amount(0, 0) });
        drop(c);
        assert_eq!(opening.left(), Left::default());
    }

    #[test]
    fn one_counts_and_what_was_begun_meanwhile_is_not_counted_twice() {
        let opening = Opening::default();
        opening.expect("a".into());
        opening.count(|_| {
            opening.count(|_| panic!("somebody is at it"));
            drop(opening.begin("a".into()));
            Some(amount(1, 7))
        });
        assert_eq!(opening.left(), Left::default());
    }
}
