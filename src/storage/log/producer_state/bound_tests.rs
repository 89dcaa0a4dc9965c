//! That no more producers are remembered than may be, whatever is appended; that those which wrote lately are; and that
//! replicas which have forgotten different ones agree on what follows.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::tests::{Written, append, check, data, marker, verify};
use super::*;

fn client(state: &mut ProducerState, batch: &Written) {
    append(state, batch, Origin::Client).unwrap();
}

fn snapshot_of(state: &ProducerState) -> Vec<(ProducerId, ProducerEntry)> {
    snapshot::decode(&state.to_snapshot()).unwrap()
}

fn ids(state: &ProducerState) -> Vec<i64> {
    state.active_producers().iter().map(|producer| producer.producer_id.0).collect()
}

/// One batch of each producer, in turn.
fn churn(state: &mut ProducerState, ids: std::ops::Range<i64>) {
    for id in ids {
        client(state, &data(ProducerId(id), 0, 0, state.end().0, 1, false));
    }
}

#[test]
fn those_that_wrote_longest_ago_are_forgotten() {
    let mut state = ProducerState::default().limited(32);
    churn(&mut state, 0..32);
    client(&mut state, &data(ProducerId(0), 0, 1, 32, 1, false));
    assert_eq!((state.len(), state.take_forgotten()), (32, 0));
    churn(&mut state, 100..101);
    let kept: Vec<i64> = [0].into_iter().chain(3..32).chain([100]).collect();
    assert_eq!(ids(&state), kept);
    assert_eq!((state.take_forgotten(), state.take_forgotten()), (2, 0));
    // One that comes back may go on where it was, or begin again, like any that is not known.
    for sequence in [1, 0] {
        let mut state = state.clone();
        let end = state.end().0;
        client(&mut state, &data(ProducerId(1), 0, sequence, end, 1, false));
    }
    // A lower limit goes for what is there.
    state.set_limit(3);
    assert_eq!(ids(&state), [0, 31, 100]);
}

#[test]
fn a_producer_with_an_open_transaction_is_never_forgotten() {
    let mut state = ProducerState::default().limited(4);
    for id in 0..10 {
        client(&mut state, &data(ProducerId(id), 0, 0, id, 1, true));
    }
    churn(&mut state, 100..200);
    assert_eq!((state.len(), state.first_undecided_offset()), (14, Some(Offset(0))));
    // Once it has ended it is one of those that were there lately.
    append(&mut state, &marker(ProducerId(0), 0, 110, TxnResult::Commit, 0), Origin::Coordinator).unwrap();
    assert!(state.get(ProducerId(0)).is_some() && state.len() == 13);
    churn(&mut state, 200..204);
    assert!(state.get(ProducerId(0)).is_none() && state.len() == 13);
    // The same from a snapshot, and one that holds more than the limit.
    let restored =
        ProducerState::new(state.end()).limited(1).with_snapshot(snapshot_of(&state), TimestampMs(-1));
    assert_eq!(ids(&restored), (1..10).chain([203]).collect::<Vec<_>>());
}

/// In a snapshot nothing tells when a marker was written. A producer that goes from transaction to transaction is not the first
/// to go.
#[test]
fn a_producer_of_which_a_snapshot_knows_a_marker_only_was_there_lately() {
    let mut state = ProducerState::default().limited(4);
    client(&mut state, &data(ProducerId(0), 0, 0, 0, 1, true));
    append(&mut state, &marker(ProducerId(0), 1, 1, TxnResult::Commit, 0), Origin::Coordinator).unwrap();
    churn(&mut state, 1..4);
    let mut restored =
        ProducerState::new(state.end()).limited(4).with_snapshot(snapshot_of(&state), TimestampMs(-1));
    churn(&mut restored, 10..11);
    assert_eq!(ids(&restored), [0, 2, 3, 10]);
}

#[test]
fn a_broker_remembers_no_more_than_it_may_and_leaves_the_small_their_share() {
    let budget = ProducerBudget::new(1000);
    let new = || ProducerState::default().limited(usize::MAX).counted(budget.clone());
    let mut small: Vec<ProducerState> = (0..9).map(|_| new()).collect();
    for state in &mut small {
        churn(state, 0..20);
    }
    let mut large = new();
    churn(&mut large, 0..10_000);
    assert!(budget.held() <= 750 && budget.held() > 690, "{}", budget.held());
    // Each may have a tenth of the last quarter, the large one goes without it.
    for state in &mut small {
        churn(state, 20..25);
        assert_eq!(state.len(), 25);
    }
    large.keep_bound();
    assert!(budget.held() <= 750, "{}", budget.held());
    churn(&mut small[0], 25..30);
    assert!(small[0].len() == 30 && small.iter().skip(1).all(|state| state.len() == 25));
    assert!(budget.forgotten() > 9_000);
    // Producers that are only asked about count as well, and begin anew when they are too many.
    let held = budget.held();
    for id in 0..2_000 {
        verify(&mut large, ProducerId(100_000 + id), 0, 0, false);
    }
    assert!(budget.held() > held && budget.held() <= 1000, "{}", budget.held());
    // What is gone is no longer counted, and what is made anew takes its place.
    large.become_state(ProducerState::new(large.end()));
    assert_eq!((large.len(), budget.held()), (0, 9 * 25 + 5));
    drop((small, large));
    assert_eq!(budget.held(), 0);
}

/// What the producers of one partition do.
#[derive(Clone, Debug)]
enum Step {
    /// A batch that follows the producer's last one.
    Write {
        id: i64,
        count: i32,
        transactional: bool,
    },
    /// The producer begins again at 0 in the same epoch, if nobody knows it any more.
    BeginAgain {
        id: i64,
    },
    End {
        id: i64,
        result: TxnResult,
        raises: bool,
    },
    /// The state is made anew, from a snapshot of now.
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let id = || prop_oneof![3 => 0..6i64, 2 => 0..100i64];
    let result = prop_oneof![Just(TxnResult::Commit), Just(TxnResult::Abort)];
    let step = prop_oneof![
        12 => (id(), 1..4i32, prop::bool::weighted(0.2))
            .prop_map(|(id, count, transactional)| Step::Write { id, count, transactional }),
        3 => id().prop_map(|id| Step::BeginAgain { id }),
        3 => (id(), result, any::<bool>()).prop_map(|(id, result, raises)| Step::End { id, result, raises }),
        1 => Just(Step::Restart),
    ];
    proptest::collection::vec(step, 0..250)
}

/// A leader with a limit, and its follower with another.
struct World {
    limit: usize,
    budget: std::sync::Arc<ProducerBudget>,
    leader: ProducerState,
    follower: ProducerState,
    /// Epoch, next sequence, and whether a transaction is open: what the producers themselves know.
    producers: BTreeMap<i64, (i16, i32, bool)>,
    /// Their last batches in this epoch.
    last: BTreeMap<i64, Written>,
    /// Producers as they wrote last, the latest at the end.
    used: Vec<i64>,
}

impl World {
    fn new(limit: usize, follower_limit: usize) -> World {
        let budget = ProducerBudget::new(10_000);
        World {
            limit,
            leader: ProducerState::default().limited(limit).counted(budget.clone()),
            follower: ProducerState::default().limited(follower_limit),
            budget,
            producers: BTreeMap::new(),
            last: BTreeMap::new(),
            used: Vec::new(),
        }
    }

    fn write(&mut self, batch: &Written, origin: Origin) {
        append(&mut self.leader, batch, origin).unwrap();
        let (header, body) = batch.parts();
        self.follower.replay(&header, body).unwrap();
        self.note_used(header.producer_id.0);
    }

    fn note_used(&mut self, id: i64) {
        self.used.retain(|other| *other != id);
        self.used.push(id);
    }

    fn produce(&mut self, id: i64, count: i32, transactional: bool) {
        let offset = self.leader.end().0;
        let (epoch, next, open) = self.producers.entry(id).or_insert((0, 0, false));
        *open |= transactional;
        let batch = data(ProducerId(id), *epoch, *next, offset, count, *open);
        *next += count;
        self.write(&batch, Origin::Client);
        self.last.insert(id, batch);
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Write { id, count, transactional } => self.produce(id, count, transactional),
            Step::BeginAgain { id } if self.leader.get(ProducerId(id)).is_none() => {
                if let Some((_, next, _)) = self.producers.get_mut(&id) {
                    *next = 0;
                }
                self.produce(id, 1, false);
            }
            Step::End { id, result, raises } => {
                // Who is known by a marker alone has to begin at 0, as in Kafka. A partition in which nothing was written gets
                // none of the same epoch but in the first generation of transactions.
                let known = |state: &ProducerState| state.get(ProducerId(id)).is_some();
                let raises = raises || !(known(&self.leader) && known(&self.follower));
                let offset = self.leader.end().0;
                let Some((epoch, next, open)) = self.producers.get_mut(&id) else { return };
                if raises {
                    (*epoch, *next) = (*epoch + 1, 0);
                    self.last.remove(&id);
                }
                *open = false;
                let batch = marker(ProducerId(id), *epoch, offset, result, 0);
                self.write(&batch, Origin::Coordinator);
            }
            Step::Restart => {
                let fresh = ProducerState::new(self.leader.end()).limited(self.limit);
                let entries = snapshot_of(&self.leader);
                self.leader.become_state(fresh.with_snapshot(entries, TimestampMs(-1)));
                // The file tells of a producer's last batch only; one that has none is taken for one of now.
                let leader = &self.leader;
                self.used.sort_by_key(|id| (leader.get(ProducerId(*id)).map(|entry| entry.last_used), *id));
            }
            Step::BeginAgain { .. } => {}
        }
    }

    fn hold_bounds(&self) -> Result<(), TestCaseError> {
        let open = self.producers.iter().filter(|(_, (_, _, open))| *open).map(|(id, _)| ProducerId(*id));
        let open: BTreeSet<ProducerId> = open.collect();
        let idle = self.leader.len() - open.len();
        prop_assert!(idle <= self.limit);
        prop_assert_eq!(self.budget.held(), idle);
        prop_assert!(open.iter().all(|id| self.leader.get(*id).is_some()));
        prop_assert!(open.iter().all(|id| self.follower.get(*id).is_some()));
        Ok(())
    }

    fn hold_laws(&self) -> Result<(), TestCaseError> {
        // Those that wrote lately are known again, on either replica.
        let kept = self.limit + 1 - ((self.limit + 1) / 16).max(1);
        for id in self.used.iter().rev().take(kept) {
            let Some(batch) = self.last.get(id) else { continue };
            let answer = check(&self.leader, batch, Origin::Client);
            prop_assert!(matches!(answer, Ok(Checked::Duplicate(_))), "{id}: {answer:?}");
        }
        // Neither refuses what comes next, or takes it for what was there before.
        for (&id, &(epoch, next, open)) in &self.producers {
            let batch = data(ProducerId(id), epoch, next, self.leader.end().0, 1, open);
            for state in [&self.leader, &self.follower] {
                let answer = check(state, &batch, Origin::Client);
                prop_assert!(matches!(answer, Ok(Checked::Append(_))), "{id}: {answer:?}");
            }
        }
        Ok(())
    }
}

proptest! {
    #[test]
    fn the_bound_holds_whatever_is_appended_and_replicas_agree(
        limit in 1..40usize,
        follower_limit in prop_oneof![1..40usize, Just(usize::MAX)],
        steps in steps(),
    ) {
        let mut world = World::new(limit, follower_limit);
        for (number, step) in steps.iter().enumerate() {
            world.step(step);
            world.hold_bounds()?;
            if number % 20 == 0 {
                world.hold_laws()?;
            }
        }
        world.hold_laws()?;
    }
}
