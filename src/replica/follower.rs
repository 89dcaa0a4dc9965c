//! A partition's follower: what to fetch next, what an answer does to the local log, when to pause and when to stop.
//!
//! Must not know records, files, sessions or connections. Invariants: the high watermark never falls within a leader epoch,
//! and not at all unless the term says that the leader may lack committed records; the log is not cut below it
//! otherwise; only the answer to the latest state of the log changes the log.
//!
//! The logs are compared by the fetches themselves (KIP-595): each carries the last fetched epoch, and a leader whose log
//! differs answers with the point to cut to. Every leader that can be followed speaks such a version, so the separate
//! question (OffsetForLeaderEpoch) of older protocols is not asked.

use super::LogPosition;
use super::following::{
    Bounds, BoundsQuery, EpochEnd, FetchAnswer, FetchFrom, FollowerConfig, FollowerEffect, FollowerLog,
    FollowerState, LocalFailure, Refusal, Stopped, Term, Wants,
};
use crate::fault::{self, Fault};
use crate::types::{LeaderEpoch, MonotonicMs, NodeId, Offset};

/// The first pause after an error; each further one is twice as long. Short, because most errors are those of an
/// election that not everybody has heard of yet.
const BACKOFF_MIN_MS: i64 = 20;
/// The pause of a follower for whose records there is no room. It asks again although there may be none still, to hear of
/// records that were deleted at the leader: that makes room.
const NO_ROOM_PAUSE_MS: i64 = 5_000;
/// Each further pause is twice as long: what comes with the answers is read and sent for nothing.
const NO_ROOM_PAUSE_MAX_MS: i64 = 60_000;

#[derive(Debug)]
pub struct Follower {
    term: Term,
    config: FollowerConfig,
    log: LogPosition,
    last_epoch: Option<LeaderEpoch>,
    state: FollowerState,
    cuts: u64,
    /// The pause after the last error; 0 after a success.
    backoff_ms: i64,
    /// The pause after records last found no room; 0 after some were appended.
    no_room_ms: i64,
}

impl Follower {
    /// Begins to follow.
    pub fn new(
        term: Term,
        log: FollowerLog,
        config: FollowerConfig,
        out: &mut Vec<FollowerEffect>,
    ) -> Follower {
        let mut follower = Follower {
            term,
            config,
            log: log.position,
            last_epoch: log.last_epoch,
            state: FollowerState::Fetching,
            cuts: 0,
            backoff_ms: 0,
            no_room_ms: 0,
        };
        follower.begin_term(out);
        follower
    }

    pub fn leader(&self) -> NodeId {
        self.term.leader
    }

    pub fn leader_epoch(&self) -> LeaderEpoch {
        self.term.leader_epoch
    }

    pub fn high_watermark(&self) -> Offset {
        self.log.high_watermark
    }

    pub fn log_end(&self) -> Offset {
        self.log.log_end
    }

    pub fn state(&self) -> FollowerState {
        self.state
    }

    /// What to ask the leader for.
    pub fn wants(&self, now: MonotonicMs) -> Wants {
        let bounds = BoundsQuery { current_leader_epoch: self.term.leader_epoch, cuts: self.cuts };
        match self.state {
            FollowerState::Fetching => Wants::Fetch(self.fetch_from()),
            FollowerState::OutOfRange => Wants::Bounds(bounds),
            FollowerState::Delayed { until, .. } if until > now || fault::is_active(Fault::SleepsForEver) => {
                Wants::Nothing { until: Some(until) }
            }
            FollowerState::Delayed { out_of_range: true, .. } => Wants::Bounds(bounds),
            FollowerState::Delayed { out_of_range: false, .. } => Wants::Fetch(self.fetch_from()),
            FollowerState::Appending { .. }
            | FollowerState::Truncating { .. }
            | FollowerState::AwaitingMetadata
            | FollowerState::Stopped(_) => Wants::Nothing { until: None },
        }
    }

    /// The metadata shows this leader. What is not newer than what is known here changes nothing, save what the leader may
    /// lack.
    pub fn term(&mut self, term: Term, out: &mut Vec<FollowerEffect>) {
        self.assert_idle();
        if term.leader_epoch == self.term.leader_epoch {
            self.allow_lack(term.may_lack_committed, out);
        }
        if term.leader_epoch <= self.term.leader_epoch {
            return;
        }
        self.term = term;
        if self.state != FollowerState::Stopped(Stopped::Storage) {
            self.begin_term(out);
        }
    }

    /// The settings changed, and with them perhaps what the leader may lack.
    pub fn configure(
        &mut self,
        config: FollowerConfig,
        may_lack_committed: bool,
        out: &mut Vec<FollowerEffect>,
    ) {
        self.config = config;
        self.allow_lack(may_lack_committed, out);
    }

    fn allow_lack(&mut self, may_lack_committed: bool, out: &mut Vec<FollowerEffect>) {
        self.term.may_lack_committed = may_lack_committed;
        let is_over = matches!(self.state, FollowerState::Stopped(Stopped::LacksCommitted { .. }));
        if may_lack_committed && is_over {
            self.begin_term(out);
        }
    }

    /// The local log is flushed below this offset.
    pub fn flushed(&mut self, flushed: Offset) {
        assert!(flushed <= self.log.log_end, "flushed passes the log end");
        self.log.flushed = self.log.flushed.max(flushed);
    }

    /// The local log starts here now, by its own retention.
    pub fn log_start_moved(&mut self, log_start: Offset) {
        assert!(log_start <= self.log.high_watermark, "the log start passes the high watermark");
        self.log.log_start = self.log.log_start.max(log_start);
    }

    /// The leader's answer to `asked`, which [`Follower::wants`] gave out.
    pub fn answered(
        &mut self,
        asked: &FetchFrom,
        answer: FetchAnswer,
        now: MonotonicMs,
        out: &mut Vec<FollowerEffect>,
    ) {
        self.assert_idle();
        let current = matches!(self.wants(now), Wants::Fetch(from) if is_same_question(&from, asked));
        let stale_taken =
            fault::is_active(Fault::TakesStaleAnswers) && matches!(self.wants(now), Wants::Fetch(_));
        if !current && !stale_taken {
            return;
        }
        match answer {
            FetchAnswer::Agrees { has_records, high_watermark, log_start } => {
                self.backoff_ms = 0;
                if has_records {
                    self.state = FollowerState::Appending { high_watermark, log_start };
                    let (expected, up_to_epoch) = (self.log.log_end, self.term.leader_epoch);
                    out.push(FollowerEffect::Append { expected, up_to_epoch });
                } else {
                    self.state = FollowerState::Fetching;
                    self.follow_offsets(high_watermark, log_start, out);
                }
            }
            FetchAnswer::Diverges { theirs, ours } => {
                let to = self.common_end(theirs, ours);
                self.cut(to, out);
            }
            FetchAnswer::Refused(Refusal::OffsetOutOfRange) => self.state = FollowerState::OutOfRange,
            FetchAnswer::Refused(refusal) => self.refused(refusal, now),
        }
    }

    /// The leader's answer to the question for its bounds.
    pub fn bounds(
        &mut self,
        asked: &BoundsQuery,
        answer: Result<Bounds, Refusal>,
        now: MonotonicMs,
        out: &mut Vec<FollowerEffect>,
    ) {
        self.assert_idle();
        if self.wants(now) != Wants::Bounds(*asked) {
            return;
        }
        match answer {
            Ok(bounds) if bounds.log_start > self.log.log_end => {
                // Everything here is deleted there, so no question of what was committed arises.
                self.cuts += 1;
                self.state = FollowerState::Truncating { to: bounds.log_start };
                out.push(FollowerEffect::StartAt { at: bounds.log_start });
            }
            Ok(bounds) if bounds.log_end < self.log.log_end => self.cut(bounds.log_end, out),
            Ok(_) => {
                // It was out of range when it was asked for and is no longer: the same question again, but not at once.
                self.delay(false, now);
            }
            Err(refusal) => self.refused(refusal, now),
        }
    }

    /// What became of [`FollowerEffect::Append`]: where the log ends now and which epoch wrote its last record.
    pub fn appended(
        &mut self,
        result: Result<(Offset, Option<LeaderEpoch>), LocalFailure>,
        now: MonotonicMs,
        out: &mut Vec<FollowerEffect>,
    ) {
        let FollowerState::Appending { high_watermark, log_start } = self.state else {
            panic!("an append that was not asked for");
        };
        match result {
            Ok((log_end, last_epoch)) => {
                assert!(log_end >= self.log.log_end, "an append shortens the log");
                let grew = log_end > self.log.log_end;
                self.log.log_end = log_end;
                self.last_epoch = last_epoch;
                self.no_room_ms = 0;
                if grew {
                    self.state = FollowerState::Fetching;
                } else {
                    self.delay(false, now); // every batch was of a later epoch: the metadata is about to come
                }
                self.follow_offsets(high_watermark, log_start, out);
            }
            Err(failure) => {
                self.failed(failure, now, out);
                if failure == LocalFailure::NoRoom {
                    self.no_room_ms = (self.no_room_ms * 2).clamp(NO_ROOM_PAUSE_MS, NO_ROOM_PAUSE_MAX_MS);
                    let until = now.plus(self.no_room_ms);
                    self.state = FollowerState::Delayed { until, out_of_range: false };
                }
                if matches!(failure, LocalFailure::DiskFull | LocalFailure::NoRoom) {
                    self.follow_offsets(high_watermark, log_start, out);
                }
            }
        }
    }

    /// There is room again, for which this follower has waited.
    pub fn has_room(&mut self) {
        if matches!(self.state, FollowerState::Delayed { out_of_range: false, .. }) {
            self.state = FollowerState::Fetching;
        }
    }

    /// What became of [`FollowerEffect::Truncate`] or [`FollowerEffect::StartAt`]: where the log stands now.
    pub fn truncated(
        &mut self,
        result: Result<FollowerLog, LocalFailure>,
        now: MonotonicMs,
        out: &mut Vec<FollowerEffect>,
    ) {
        let FollowerState::Truncating { to } = self.state else {
            panic!("a truncation that was not asked for");
        };
        match result {
            Ok(log) => {
                assert!(log.position.log_end <= to, "the log was not cut");
                let changed = log.position.log_end != self.log.log_end || log.last_epoch != self.last_epoch;
                self.log = log.position;
                self.last_epoch = log.last_epoch;
                self.state = FollowerState::Fetching;
                if !changed {
                    self.delay(false, now); // the leader would say the same again
                }
            }
            Err(failure) => self.failed(failure, now, out),
        }
    }

    /// The connection broke, or could not be made: answers that are under way will not come.
    pub fn disconnected(&mut self, now: MonotonicMs) {
        self.assert_idle();
        match self.wants(now) {
            Wants::Fetch(_) => self.delay(false, now),
            Wants::Bounds(_) => self.delay(true, now),
            Wants::Nothing { .. } => {}
        }
    }

    fn assert_idle(&self) {
        let busy = matches!(self.state, FollowerState::Appending { .. } | FollowerState::Truncating { .. });
        assert!(!busy, "an effect was not reported: {:?}", self.state);
    }

    fn fetch_from(&self) -> FetchFrom {
        let hides_epoch = fault::is_active(Fault::HidesLastEpoch);
        let reports_unflushed = fault::is_active(Fault::ReportsUnflushed);
        FetchFrom {
            offset: self.log.log_end,
            last_fetched_epoch: self.last_epoch.filter(|_| !hides_epoch),
            log_start: self.log.log_start,
            current_leader_epoch: self.term.leader_epoch,
            flushed: if reports_unflushed { self.log.log_end } else { self.log.flushed },
            high_watermark: self.log.high_watermark,
            cuts: self.cuts,
        }
    }

    fn begin_term(&mut self, out: &mut Vec<FollowerEffect>) {
        self.cuts += 1;
        self.backoff_ms = 0;
        self.state = FollowerState::Fetching;
        // Without an epoch nobody can tell whether the logs diverge: only what is committed is certain.
        if self.last_epoch.is_none() && self.log.log_end > self.log.high_watermark {
            self.cut(self.log.high_watermark, out);
        }
    }

    /// Up to where the two logs are the same for certain, as far as this answer tells.
    fn common_end(&self, theirs: EpochEnd, ours: Option<EpochEnd>) -> Offset {
        let end = self.log.log_end;
        if theirs.end == Offset::UNKNOWN {
            return self.log.high_watermark;
        }
        match ours {
            // The leader's epoch is not known here: cut what follows the one before, and compare again.
            Some(ours) if ours.epoch != theirs.epoch => ours.end.min(end),
            Some(ours) => ours.end.min(theirs.end).min(end),
            None => theirs.end.min(end),
        }
    }

    /// Cuts the log, unless that would drop committed records that the leader must have.
    fn cut(&mut self, to: Offset, out: &mut Vec<FollowerEffect>) {
        let below = fault::is_active(Fault::CutsBelowHighWatermark);
        let to = if below { Offset((self.log.high_watermark.0 - 1).max(0)) } else { to };
        // A log without anything since an unclean election is of a history that was given up, be it committed or not.
        let is_given_up = self.last_epoch.is_none_or(|last| last < self.term.lossy_epoch)
            && self.term.lossy_epoch != LeaderEpoch::UNKNOWN;
        let may_lack = self.term.may_lack_committed || is_given_up;
        if to < self.log.high_watermark && !may_lack && !below {
            return self.stop(Stopped::LacksCommitted { from: to }, out);
        }
        self.cuts += 1;
        self.state = FollowerState::Truncating { to };
        out.push(FollowerEffect::Truncate { to });
    }

    /// The leader's offsets, now that the log holds what came with them.
    fn follow_offsets(&mut self, high_watermark: Offset, log_start: Offset, out: &mut Vec<FollowerEffect>) {
        let high_watermark = high_watermark.min(self.log.log_end);
        let falls = fault::is_active(Fault::HighWatermarkFalls) && high_watermark < self.log.high_watermark;
        if high_watermark > self.log.high_watermark || falls {
            self.log.high_watermark = high_watermark;
            out.push(FollowerEffect::HighWatermark(high_watermark));
        }
        let log_start = log_start.min(self.log.high_watermark);
        if log_start > self.log.log_start {
            self.log.log_start = log_start;
            out.push(FollowerEffect::LogStart(log_start));
        }
    }

    fn refused(&mut self, refusal: Refusal, now: MonotonicMs) {
        match refusal {
            Refusal::FencedLeaderEpoch => self.state = FollowerState::AwaitingMetadata,
            // The leader may not have heard of its office, or of the topic, yet; or this broker not of another one. Either
            // passes: newer metadata ends the pause.
            Refusal::UnknownLeaderEpoch
            | Refusal::NotLeader
            | Refusal::UnknownTopicOrPartition
            | Refusal::UnknownTopicId
            | Refusal::InconsistentTopicId
            | Refusal::StorageError
            | Refusal::OffsetOutOfRange
            | Refusal::Other => {
                let out_of_range = matches!(
                    self.state,
                    FollowerState::OutOfRange | FollowerState::Delayed { out_of_range: true, .. }
                );
                self.delay(out_of_range, now);
            }
        }
    }

    fn failed(&mut self, failure: LocalFailure, now: MonotonicMs, out: &mut Vec<FollowerEffect>) {
        match failure {
            LocalFailure::Corrupt | LocalFailure::DiskFull | LocalFailure::NoRoom => self.delay(false, now),
            LocalFailure::Unfit => self.stop(Stopped::Unfit, out),
            LocalFailure::Storage => self.stop(Stopped::Storage, out),
        }
    }

    fn stop(&mut self, why: Stopped, out: &mut Vec<FollowerEffect>) {
        self.state = FollowerState::Stopped(why);
        out.push(FollowerEffect::Stopped(why));
    }

    fn delay(&mut self, out_of_range: bool, now: MonotonicMs) {
        self.backoff_ms = (self.backoff_ms * 2).max(BACKOFF_MIN_MS).min(self.config.backoff_max_ms);
        self.state = FollowerState::Delayed { until: now.plus(self.backoff_ms), out_of_range };
    }
}

/// Whether an answer to `asked` still fits. What was flushed or deleted since does not matter.
fn is_same_question(now: &FetchFrom, asked: &FetchFrom) -> bool {
    now.offset == asked.offset
        && now.current_leader_epoch == asked.current_leader_epoch
        && now.cuts == asked.cuts
}
