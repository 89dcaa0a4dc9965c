//! Sequences, epochs, transactions and their bounds, case by case; and that a snapshot with the batches after it gives
//! the live state.

use proptest::prelude::*;

use super::*;
use crate::types::LeaderEpoch;
use crate::wire::batch::{Batches, PartialTail};
use crate::wire::batch_builder::BatchBuilder;

const P: ProducerId = ProducerId(7);
const Q: ProducerId = ProducerId(8);

/// A batch as its bytes.
#[derive(Clone, Debug)]
pub(super) struct Written(Vec<u8>);

impl Written {
    pub(super) fn parts(&self) -> (BatchHeader, &[u8]) {
        let batch = Batches::new(&self.0, PartialTail::Refuse).next().unwrap().unwrap();
        (batch.header, batch.body())
    }
}

fn owned(batch: &Written) -> (BatchHeader, Vec<u8>) {
    let (header, body) = batch.parts();
    (header, body.to_vec())
}

pub(super) fn data(
    id: ProducerId,
    epoch: i16,
    sequence: i32,
    offset: i64,
    count: i32,
    transactional: bool,
) -> Written {
    let mut builder = BatchBuilder::new()
        .base_offset(Offset(offset))
        .producer(id, ProducerEpoch(epoch), sequence)
        .transactional(transactional);
    for index in 0..count {
        builder.push(TimestampMs(offset * 10 + i64::from(index)), None, Some(b"v"), &[]);
    }
    Written(builder.build().unwrap().to_vec())
}

pub(super) fn marker(
    id: ProducerId,
    epoch: i16,
    offset: i64,
    result: TxnResult,
    coordinator_epoch: i32,
) -> Written {
    let marker = EndTxnMarker { result, coordinator_epoch, timestamp: TimestampMs(offset * 10) };
    Written(marker.batch(id, ProducerEpoch(epoch), Offset(offset), LeaderEpoch(0)).to_vec())
}

pub(super) fn check(
    state: &ProducerState,
    batch: &Written,
    origin: Origin,
) -> Result<Checked, ProducerError> {
    let (header, body) = batch.parts();
    state.check(&header, body, origin, Coordinated { verified: Verified::Waived, ..Coordinated::default() })
}

/// Checks and applies.
pub(super) fn append(
    state: &mut ProducerState,
    batch: &Written,
    origin: Origin,
) -> Result<Option<CompletedTxn>, ProducerError> {
    match check(state, batch, origin)? {
        Checked::Append(update) => Ok(state.apply(update)),
        Checked::Duplicate(duplicate) => panic!("{duplicate:?}"),
    }
}

fn client(state: &mut ProducerState, batch: &Written) -> Result<Option<CompletedTxn>, ProducerError> {
    append(state, batch, Origin::Client)
}

#[test]
fn sequences_follow_one_another() {
    let mut state = ProducerState::default();
    client(&mut state, &data(P, 0, 0, 0, 3, false)).unwrap();
    client(&mut state, &data(P, 0, 3, 3, 1, false)).unwrap();
    let out_of_order = |sequence| ProducerError::OutOfOrderSequence { producer_id: P, sequence, last: 3 };
    for sequence in [0, 1, 2, 5, i32::MAX] {
        let batch = data(P, 0, sequence, 4, 5, false);
        assert_eq!(check(&state, &batch, Origin::Client), Err(out_of_order(sequence)));
    }
    // Coordinators have no sequences, replicas copy.
    assert!(check(&state, &data(P, 0, -1, 4, 1, false), Origin::Coordinator).is_ok());
    assert!(check(&state, &data(P, 0, 99, 4, 1, false), Origin::Replication).is_ok());
    client(&mut state, &data(P, 0, 4, 4, 1, false)).unwrap();
    assert_eq!(state.end(), Offset(5));
}

#[test]
fn sequences_wrap() {
    let mut state = ProducerState::default();
    client(&mut state, &data(P, 0, i32::MAX - 1, 0, 2, false)).unwrap();
    client(&mut state, &data(P, 0, 0, 2, 1, false)).unwrap();
    let mut state = ProducerState::default();
    let across = data(P, 0, i32::MAX - 1, 0, 4, false);
    client(&mut state, &across).unwrap();
    assert_eq!(state.get(P).unwrap().last_sequence(), 1);
    assert!(matches!(check(&state, &across, Origin::Client), Ok(Checked::Duplicate(_))));
    client(&mut state, &data(P, 0, 2, 4, 1, false)).unwrap();
}

#[test]
fn an_unknown_producer_may_begin_anywhere_but_a_new_epoch_at_zero() {
    let mut state = ProducerState::default();
    client(&mut state, &data(P, 3, 500, 0, 1, false)).unwrap();
    assert_eq!(
        check(&state, &data(P, 4, 1, 1, 1, false), Origin::Client),
        Err(ProducerError::OutOfOrderSequence { producer_id: P, sequence: 1, last: -1 })
    );
    client(&mut state, &data(P, 4, 0, 1, 1, false)).unwrap();
    for origin in [Origin::Client, Origin::Coordinator] {
        assert_eq!(
            check(&state, &data(P, 3, 501, 2, 1, false), origin),
            Err(ProducerError::Fenced { producer_id: P, epoch: ProducerEpoch(3), current: ProducerEpoch(4) })
        );
    }
}

#[test]
fn the_last_five_batches_are_known_again() {
    let mut state = ProducerState::default();
    let batches: Vec<_> = (0..7).map(|i| data(P, 0, i * 2, i64::from(i) * 2, 2, false)).collect();
    for batch in &batches {
        client(&mut state, batch).unwrap();
    }
    for (index, batch) in batches.iter().enumerate() {
        match check(&state, batch, Origin::Client) {
            Ok(Checked::Duplicate(duplicate)) => {
                assert!(index >= 2);
                let (header, _) = batch.parts();
                assert_eq!(duplicate.first_offset(), header.base_offset);
                assert_eq!(duplicate.last_offset, header.last_offset());
                assert_eq!(duplicate.timestamp, header.max_timestamp);
            }
            Err(ProducerError::OutOfOrderSequence { .. }) => assert!(index < 2),
            other => panic!("{other:?}"),
        }
    }
    // The same first sequence with another length is no repetition.
    assert!(check(&state, &data(P, 0, 12, 14, 1, false), Origin::Client).is_err());
    // Nor is the same in another epoch.
    assert!(check(&state, &data(P, 1, 12, 14, 2, false), Origin::Client).is_err());
}

#[test]
fn transactions_hold_the_last_stable_offset_until_their_marker_is_replicated() {
    let mut state = ProducerState::default();
    client(&mut state, &data(P, 0, 0, 10, 2, true)).unwrap();
    client(&mut state, &data(Q, 0, 0, 12, 1, true)).unwrap();
    client(&mut state, &data(P, 0, 2, 13, 1, true)).unwrap();
    assert!(
        state.has_open_transaction(P, ProducerEpoch(0)) && !state.has_open_transaction(P, ProducerEpoch(1))
    );
    assert_eq!(state.first_unstable_offset(), Some(Offset(10)));
    assert_eq!(state.oldest_open_transaction(), Some(TimestampMs(130)));
    assert_eq!(
        check(&state, &data(P, 0, 3, 14, 1, false), Origin::Client),
        Err(ProducerError::NotTransactional { producer_id: P })
    );

    let completed = append(&mut state, &marker(P, 0, 14, TxnResult::Abort, 1), Origin::Coordinator).unwrap();
    let completed = completed.unwrap();
    assert_eq!((completed.first_offset, completed.last_offset), (Offset(10), Offset(14)));
    assert_eq!(completed.last_stable_offset, Offset(12));
    assert_eq!(completed.aborted().unwrap().last_stable_offset, Offset(12));
    assert_eq!(state.first_undecided_offset(), Some(Offset(12)));
    assert_eq!(state.first_unstable_offset(), Some(Offset(10)));

    let completed = append(&mut state, &marker(Q, 0, 15, TxnResult::Commit, 1), Origin::Coordinator).unwrap();
    assert_eq!(completed.unwrap().last_stable_offset, Offset(16));
    assert_eq!(completed.unwrap().aborted(), None);
    state.on_high_watermark(Offset(14));
    assert_eq!(state.first_unstable_offset(), Some(Offset(10)));
    state.on_high_watermark(Offset(15));
    assert_eq!(state.first_unstable_offset(), Some(Offset(12)));
    state.on_high_watermark(Offset(16));
    assert_eq!(state.first_unstable_offset(), None);
    assert_eq!(state.end(), Offset(16));
    // The producer goes on where it was.
    client(&mut state, &data(P, 0, 3, 16, 1, true)).unwrap();
}

#[test]
fn no_transaction_begins_that_its_coordinator_does_not_know() {
    let mut state = ProducerState::default();
    let unverified = |state: &ProducerState, batch: &Written, origin| {
        let (header, body) = batch.parts();
        state.check(&header, body, origin, Coordinated::default())
    };
    let refused = Err(ProducerError::Unverified { producer_id: P });
    let first = data(P, 0, 0, 0, 1, true);
    assert_eq!(unverified(&state, &first, Origin::Client), refused);
    assert_eq!(unverified(&state, &first, Origin::Coordinator), refused);
    client(&mut state, &first).unwrap();
    // Once begun it goes on, but not into the next epoch.
    assert!(unverified(&state, &data(P, 0, 1, 1, 1, true), Origin::Client).is_ok());
    assert_eq!(unverified(&state, &data(P, 1, 0, 1, 1, true), Origin::Client), refused);
    append(&mut state, &marker(P, 0, 1, TxnResult::Commit, 0), Origin::Coordinator).unwrap();
    assert_eq!(unverified(&state, &data(P, 0, 1, 2, 1, true), Origin::Client), refused);
    // A repetition of what is there begins nothing.
    assert!(matches!(unverified(&state, &first, Origin::Client), Ok(Checked::Duplicate(_))));
}

#[test]
fn markers_fence_producers_and_coordinators() {
    let mut state = ProducerState::default();
    let commit = |epoch, offset, coordinator| marker(P, epoch, offset, TxnResult::Commit, coordinator);
    client(&mut state, &data(P, 5, 0, 0, 1, true)).unwrap();
    assert!(matches!(
        check(&state, &commit(4, 1, 3), Origin::Coordinator),
        Err(ProducerError::Fenced { .. })
    ));
    // A coordinator that aborts for a producer it fenced raises the epoch.
    let completed = append(&mut state, &commit(6, 1, 3), Origin::Coordinator).unwrap();
    assert_eq!(completed.unwrap().first_offset, Offset(0));
    assert!(matches!(
        check(&state, &data(P, 5, 1, 2, 1, true), Origin::Client),
        Err(ProducerError::Fenced { .. })
    ));
    assert_eq!(
        check(&state, &commit(6, 2, 2), Origin::Coordinator),
        Err(ProducerError::CoordinatorFenced { producer_id: P, epoch: 2, current: 3 })
    );
    // A marker without a transaction ends nothing.
    assert_eq!(append(&mut state, &commit(6, 2, 4), Origin::Coordinator), Ok(None));
    assert_eq!(state.get(P).unwrap().coordinator_epoch, 4);
    // Replicas take what the leader took.
    let (header, body) = owned(&commit(1, 3, 0));
    assert_eq!(state.replay(&header, &body), Ok(None));
}

#[test]
fn version_2_of_transactions_wants_markers_of_a_later_epoch() {
    let mut state = ProducerState::default();
    client(&mut state, &data(P, 5, 0, 0, 1, true)).unwrap();
    let later = |state: &ProducerState, epoch| {
        let (header, body) = owned(&marker(P, epoch, 1, TxnResult::Commit, 0));
        let coordinated = Coordinated { marker_epoch: MarkerEpoch::Later, ..Coordinated::default() };
        state.check(&header, &body, Origin::Coordinator, coordinated)
    };
    assert!(matches!(later(&state, 5), Err(ProducerError::Fenced { .. })));
    let Ok(Checked::Append(update)) = later(&state, 6) else { panic!() };
    assert!(state.apply(update).is_some());
    // Again: a repetition, since nothing is open any more.
    assert!(later(&state, 6).is_ok());
    assert!(later(&state, 5).is_err());

    let mut last = ProducerState::default();
    client(&mut last, &data(P, i16::MAX, 0, 0, 1, true)).unwrap();
    assert!(later(&last, i16::MAX).is_ok());
}

/// Asks for the guard of a batch.
pub(super) fn verify(
    state: &mut ProducerState,
    id: ProducerId,
    epoch: i16,
    sequence: i32,
    raises_epoch: bool,
) -> Guard {
    let batch = FirstBatch { producer_id: id, epoch: ProducerEpoch(epoch), sequence, raises_epoch };
    state.begin_verification(&batch, TimestampMs(1_000)).unwrap().unwrap()
}

fn check_with(state: &ProducerState, batch: &Written, guard: Guard) -> Result<Checked, ProducerError> {
    let (header, body) = batch.parts();
    let coordinated = Coordinated { verified: Verified::By(guard), ..Coordinated::default() };
    state.check(&header, body, Origin::Client, coordinated)
}

#[test]
fn a_coordinators_word_of_before_a_marker_begins_nothing_after_it() {
    let mut state = ProducerState::default();
    let unverified = Err(ProducerError::Unverified { producer_id: P });
    let guard = verify(&mut state, P, 0, 0, false);
    let first = data(P, 0, 0, 0, 1, true);
    assert!(check_with(&state, &first, guard).is_ok());
    // The guard is the producer's alone.
    let theirs = verify(&mut state, Q, 0, 0, false);
    assert_eq!(check_with(&state, &first, theirs), unverified);
    append(&mut state, &marker(P, 0, 0, TxnResult::Abort, 0), Origin::Coordinator).unwrap();
    assert_eq!(check_with(&state, &first, guard), unverified);
    // Asked anew it may begin, and that guard is spent by it.
    let guard = verify(&mut state, P, 0, 0, false);
    let Ok(Checked::Append(update)) = check_with(&state, &first, guard) else { panic!() };
    state.apply(update);
    append(&mut state, &marker(P, 0, 1, TxnResult::Commit, 0), Origin::Coordinator).unwrap();
    assert_eq!(check_with(&state, &data(P, 0, 1, 2, 1, true), guard), unverified);
    // While it is open there is nothing to ask.
    client(&mut state, &data(P, 0, 1, 2, 1, true)).unwrap();
    let batch = FirstBatch { producer_id: P, epoch: ProducerEpoch(0), sequence: 2, raises_epoch: false };
    assert_eq!(state.begin_verification(&batch, TimestampMs(0)), Ok(None));
    // A producer of before is told at once.
    client(&mut state, &data(P, 1, 0, 3, 1, true)).unwrap();
    assert!(matches!(
        state.begin_verification(&batch, TimestampMs(0)),
        Err(ProducerError::Fenced { epoch: ProducerEpoch(0), current: ProducerEpoch(1), .. })
    ));
}

#[test]
fn the_next_transactions_guard_outlives_the_marker_of_the_one_before_when_epochs_tell_them_apart() {
    let mut state = ProducerState::default();
    client(&mut state, &data(P, 5, 0, 0, 1, true)).unwrap();
    let guard = verify(&mut state, P, 6, 0, true);
    append(&mut state, &marker(P, 6, 1, TxnResult::Commit, 0), Origin::Coordinator).unwrap();
    assert!(check_with(&state, &data(P, 6, 0, 2, 1, true), guard).is_ok());
    append(&mut state, &marker(P, 7, 2, TxnResult::Abort, 0), Origin::Coordinator).unwrap();
    assert!(check_with(&state, &data(P, 7, 0, 3, 1, true), guard).is_err());
}

#[test]
fn while_a_producer_is_asked_about_its_lowest_sequence_comes_first() {
    let mut state = ProducerState::default();
    let guard = verify(&mut state, P, 0, 5, false);
    assert_eq!(verify(&mut state, P, 0, 2, false), guard);
    assert_eq!(verify(&mut state, P, 0, 9, false), guard);
    assert_eq!(
        check_with(&state, &data(P, 0, 5, 0, 1, true), guard),
        Err(ProducerError::PastLowestSequence { producer_id: P, sequence: 5, lowest: 2 })
    );
    assert!(check_with(&state, &data(P, 0, 2, 0, 1, true), guard).is_ok());
    // A new epoch counts anew.
    assert_eq!(verify(&mut state, P, 1, 7, false), guard);
    assert!(check_with(&state, &data(P, 1, 7, 0, 1, true), guard).is_ok());

    // Who raises the epoch with each transaction always begins at 0.
    let guard = verify(&mut state, Q, 0, 3, true);
    assert!(matches!(
        check_with(&state, &data(Q, 0, 3, 0, 1, true), guard),
        Err(ProducerError::OutOfOrderSequence { sequence: 3, .. })
    ));
    verify(&mut state, Q, 0, 0, true);
    assert!(check_with(&state, &data(Q, 0, 0, 0, 1, true), guard).is_ok());
}

#[test]
fn guards_expire_and_do_not_outlive_a_log_that_was_cut() {
    let mut state = ProducerState::default();
    let guard = verify(&mut state, P, 0, 0, false);
    assert!(!state.is_empty());
    state.expire(TimestampMs(999));
    assert!(check_with(&state, &data(P, 0, 0, 0, 1, true), guard).is_ok());
    state.expire(TimestampMs(1_000));
    assert!(check_with(&state, &data(P, 0, 0, 0, 1, true), guard).is_err() && state.is_empty());

    let guard = verify(&mut state, P, 0, 0, false);
    state.become_state(ProducerState::new(Offset(0)));
    let fresh = verify(&mut state, P, 0, 0, false);
    assert_ne!(fresh, guard);
    assert!(check_with(&state, &data(P, 0, 0, 0, 1, true), guard).is_err());
}

#[test]
fn made_up_producers_fill_no_memory() {
    let mut state = ProducerState::default();
    let first = verify(&mut state, P, 0, 0, false);
    for id in 100..100 + (1 << 16) {
        verify(&mut state, ProducerId(id), 0, 0, false);
    }
    assert!(check_with(&state, &data(P, 0, 0, 0, 1, true), first).is_err(), "all begin anew");
}

#[test]
fn idle_producers_expire_unless_a_transaction_is_open() {
    let mut state = ProducerState::default();
    client(&mut state, &data(P, 0, 0, 10, 1, false)).unwrap();
    client(&mut state, &data(Q, 0, 0, 11, 1, true)).unwrap();
    assert_eq!(state.expire(TimestampMs(99)), 0);
    assert_eq!(state.expire(TimestampMs(100)), 1);
    assert_eq!(state.expire(TimestampMs(1 << 40)), 0);
    assert_eq!(state.active_producers().iter().map(|p| p.producer_id).collect::<Vec<_>>(), [Q]);

    let entries = snapshot::decode(&state.to_snapshot()).unwrap();
    assert_eq!(ProducerState::new(state.end()).with_snapshot(entries, TimestampMs(1 << 40)).len(), 1);
}

#[test]
fn batches_without_a_producer_only_move_the_end() {
    let mut state = ProducerState::new(Offset(5));
    let mut builder = BatchBuilder::new().base_offset(Offset(5));
    builder.push(TimestampMs(1), None, None, &[]);
    let bytes = Written(builder.build().unwrap().to_vec());
    let (header, body) = bytes.parts();
    assert_eq!(state.replay(&header, body), Ok(None));
    assert_eq!((state.end(), state.is_empty()), (Offset(6), true));
    assert_eq!(append(&mut state, &bytes, Origin::Client), Ok(None));
}

/// One step of a producer's life, made into a batch at the log's end.
fn step(kind: u8, id: i64, state: &ProducerState) -> Option<Written> {
    let id = ProducerId(id);
    let offset = state.end().0;
    let entry = state.get(id);
    let epoch = entry.map_or(0, |e| e.epoch.0);
    let open = entry.is_some_and(|e| e.current_txn_first_offset.is_some());
    let next = entry.map_or(0, |e| e.last_sequence() + 1);
    match kind {
        0..=5 => Some(data(id, epoch, next, offset, 1 + i32::from(kind), open || kind.is_multiple_of(2))),
        6 => Some(data(id, epoch + 1, 0, offset, 1, open)),
        7 => Some(marker(id, epoch, offset, TxnResult::Abort, 0)),
        8 => Some(marker(id, epoch + 1, offset, TxnResult::Commit, 0)),
        _ => None,
    }
}

proptest! {
    /// The state of a log can be had from any snapshot and the batches after it, whether they are checked or only noted.
    #[test]
    fn a_snapshot_and_what_follows_give_the_live_state(
        steps in proptest::collection::vec((0..10u8, 0..4i64), 0..60),
        snapshot_after in 0..60usize,
    ) {
        let mut live = ProducerState::default();
        let mut followed = ProducerState::default();
        let mut restored: Option<ProducerState> = None;
        for (index, (kind, id)) in steps.into_iter().enumerate() {
            if index == snapshot_after {
                let entries = snapshot::decode(&live.to_snapshot()).unwrap();
                restored = Some(ProducerState::new(live.end()).with_snapshot(entries, TimestampMs(-1)));
            }
            let Some(batch) = step(kind, id, &live) else {
                live.on_high_watermark(live.end());
                followed.on_high_watermark(followed.end());
                continue;
            };
            let (header, body) = batch.parts();
            let origin = if header.is_control() { Origin::Coordinator } else { Origin::Client };
            let completed = append(&mut live, &batch, origin).unwrap();
            prop_assert_eq!(followed.replay(&header, body).unwrap(), completed);
            if let Some(restored) = &mut restored {
                prop_assert_eq!(restored.replay(&header, body).unwrap(), completed);
            }
            let open: Vec<_> = live.active_producers().iter().filter_map(|p| p.current_txn_first_offset).collect();
            prop_assert_eq!(live.first_undecided_offset(), open.into_iter().min());
        }
        prop_assert_eq!(live.active_producers(), followed.active_producers());
        prop_assert_eq!(live.first_unstable_offset(), followed.first_unstable_offset());
        prop_assert_eq!(live.to_snapshot(), followed.to_snapshot());
        if let Some(restored) = restored {
            prop_assert_eq!(live.active_producers(), restored.active_producers());
            prop_assert_eq!(live.first_undecided_offset(), restored.first_undecided_offset());
            prop_assert_eq!(live.end(), restored.end());
            // Also the batches before the last, which a producer may send again.
            let batches = |state: &ProducerState, id| {
                let batches = state.get(id).unwrap().batches().iter();
                batches.map(|batch| (batch.last_sequence, batch.last_offset, batch.offset_delta)).collect::<Vec<_>>()
            };
            for producer in live.active_producers() {
                let id = producer.producer_id;
                prop_assert_eq!(batches(&live, id), batches(&restored, id));
            }
        }
    }
}
