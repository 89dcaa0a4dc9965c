//! A partition that follows: the follower core and the log, joined. What leaders say comes in, the log is changed as the core
//! decides, and what the follower wants next goes out.
//!
//! Must not know connections or other partitions. Invariant: at the end of a step the fetcher of the leader knows what the
//! follower wants, and no other fetcher has it among its partitions.

use bytes::Bytes;

use super::hosted::{Desk, Hosted, HostedRole};
use super::ledger::Ledger;
use super::messages::{LeaderAnswer, PartitionWants};
use super::partitions::{Leadership, Role};
use crate::replica::{
    EpochEnd, FetchAnswer, Follower, FollowerEffect, FollowerLog, LocalFailure, Stopped, Term, Wants,
};
use crate::storage::log::{AppendError, LogError};
use crate::types::{LeaderEpoch, MonotonicMs, NodeId, Offset};

#[derive(Debug)]
pub(super) struct Following {
    pub(super) core: Follower,
    /// The metadata says that the leader was elected uncleanly.
    leader_recovers: bool,
    /// What the leader last said to be committed: who lacks that is not in sync, and may be throttled.
    committed: Option<Offset>,
    /// The leader last said that its high watermark waits for what is flushed here, be the setting of this broker what it may.
    pub(super) leader_counts_flushed: bool,
    /// What was last told, and to whose fetcher.
    told: Option<(NodeId, Wants, bool)>,
    /// The fetcher waits for word, also when nothing has changed.
    owes_word: bool,
    /// The last records were refused, for there was no room.
    lacks_room: bool,
}

/// How often a follower that lacks room looks whether there is some.
const ROOM_RETRY_MS: i64 = 500;

impl Following {
    /// When the core's pause ends.
    pub(super) fn wakes_at(&self, now: MonotonicMs) -> Option<MonotonicMs> {
        let until = match self.told {
            Some((_, Wants::Nothing { until }, _)) => until,
            _ => None,
        };
        let look = self.lacks_room.then(|| now.plus(ROOM_RETRY_MS));
        until.into_iter().chain(look).min()
    }
}

impl Hosted {
    pub(super) fn follow(&mut self, term: Term, desk: &mut Desk) {
        let leader_recovers = term.may_lack_committed;
        let may_lack_committed = leader_recovers || self.config.follower.may_lack_committed;
        let told_to = Term { may_lack_committed, ..term };
        if let HostedRole::Following(following) = &mut self.role {
            following.leader_recovers = leader_recovers;
            following.core.term(told_to, &mut desk.follower_effects);
        } else {
            self.resign(desk);
            let config = self.config.follower.core;
            let core = Follower::new(told_to, self.follower_log(), config, &mut desk.follower_effects);
            self.role = HostedRole::Following(Box::new(Following {
                core,
                leader_recovers,
                committed: None,
                leader_counts_flushed: false,
                told: None,
                owes_word: false,
                lacks_room: false,
            }));
        }
        let HostedRole::Following(following) = &self.role else { return };
        let leadership = Leadership {
            role: Role::Follower,
            leader: following.core.leader(),
            leader_epoch: following.core.leader_epoch(),
            epoch_start: None,
        };
        // Readers must not take what follows for the leader's log.
        self.partition.set_leadership(leadership);
        self.carry_out_follower(&Bytes::new(), desk);
        self.partition.waiters.wake_all();
    }

    pub(super) fn configure_follower(&mut self, desk: &mut Desk) {
        let HostedRole::Following(following) = &mut self.role else { return };
        let settings = self.config.follower;
        let may_lack_committed = following.leader_recovers || settings.may_lack_committed;
        following.core.configure(settings.core, may_lack_committed, &mut desk.follower_effects);
        self.carry_out_follower(&Bytes::new(), desk);
    }

    /// The leader has answered.
    pub(super) fn fetched(&mut self, answer: LeaderAnswer, desk: &mut Desk) {
        let now = desk.now.monotonic;
        let HostedRole::Following(following) = &mut self.role else { return };
        following.owes_word = true;
        let Following { core, committed, leader_counts_flushed, .. } = &mut **following;
        let out = &mut desk.follower_effects;
        let (mut came, mut told) = (Bytes::new(), None);
        match answer {
            LeaderAnswer::Records { asked, records, high_watermark, log_start, counts_flushed } => {
                let has_records = !records.is_empty();
                told = Some((asked.current_leader_epoch, high_watermark));
                *leader_counts_flushed = counts_flushed;
                *committed = Some(high_watermark);
                came = records;
                let answer = FetchAnswer::Agrees { has_records, high_watermark, log_start };
                core.answered(&asked, answer, now, out);
            }
            LeaderAnswer::Diverges { asked, theirs } => {
                let ours = self.log.epochs().end_offset_for(theirs.epoch, self.log.log_end());
                let ours = ours.map(|(epoch, end)| EpochEnd { epoch, end });
                core.answered(&asked, FetchAnswer::Diverges { theirs, ours }, now, out);
            }
            LeaderAnswer::Refused { asked, refusal } => {
                core.answered(&asked, FetchAnswer::Refused(refusal), now, out);
            }
            LeaderAnswer::Bounds { asked, bounds } => core.bounds(&asked, bounds, now, out),
        }
        self.carry_out_follower(&came, desk);
        if let Some((epoch, high_watermark)) = told {
            self.note_rebuilt(epoch, high_watermark, desk);
        }
    }

    fn follower_log(&self) -> FollowerLog {
        FollowerLog { position: self.position(), last_epoch: self.last_epoch() }
    }

    fn last_epoch(&self) -> Option<LeaderEpoch> {
        self.log.epochs().latest().map(|entry| entry.epoch)
    }

    /// Does what the core decided; `records` came with the answer at hand.
    fn carry_out_follower(&mut self, records: &Bytes, desk: &mut Desk) {
        let mut at = 0;
        while let Some(effect) = desk.follower_effects.get(at).copied() {
            at += 1;
            match effect {
                FollowerEffect::Append { expected, up_to_epoch } => {
                    let result = self.append_copy(records, expected, up_to_epoch, desk);
                    if let HostedRole::Following(following) = &mut self.role {
                        following.lacks_room = matches!(result, Err(LocalFailure::NoRoom));
                    }
                    self.report(desk, |core, now, out| core.appended(result, now, out));
                }
                FollowerEffect::Truncate { to } => {
                    let result = self.log.truncate_to(to, desk.now.wall).map(drop);
                    self.report_cut(to, result, desk);
                }
                FollowerEffect::StartAt { at } => {
                    let result = self.log.truncate_fully_and_start_at(at, desk.now.wall);
                    self.report_cut(at, result, desk);
                }
                FollowerEffect::HighWatermark(at) => self.log.set_high_watermark(at),
                FollowerEffect::LogStart(at) => {
                    // A failure is noted there and takes the directory out of service, or passes and comes again.
                    let _ = self.start_log_at(at, desk);
                }
                FollowerEffect::Stopped(why) => self.tell_stopped(why),
            }
        }
        desk.follower_effects.clear();
    }

    fn report(
        &mut self,
        desk: &mut Desk,
        report: impl FnOnce(&mut Follower, MonotonicMs, &mut Vec<FollowerEffect>),
    ) {
        if let HostedRole::Following(following) = &mut self.role {
            report(&mut following.core, desk.now.monotonic, &mut desk.follower_effects);
        }
    }

    fn append_copy(
        &mut self,
        records: &Bytes,
        expected: Offset,
        up_to_epoch: LeaderEpoch,
        desk: &Desk,
    ) -> Result<(Offset, Option<LeaderEpoch>), LocalFailure> {
        assert_eq!(expected, self.log.log_end(), "the core and the log of {} differ", self.partition.name);
        if !self.has_room_for(records.len(), desk) {
            return Err(LocalFailure::NoRoom);
        }
        let appended = self.log.append_as_follower(records, up_to_epoch, desk.now.wall);
        match appended {
            Ok(_) => {
                self.ledger.appended(self.log.log_end(), records.len());
                self.dirty_since.get_or_insert(desk.now.monotonic);
                self.last_append = desk.now.monotonic;
                Ok((self.log.log_end(), self.last_epoch()))
            }
            // Everything was of a later epoch.
            Err(AppendError::Empty) => Ok((expected, self.last_epoch())),
            Err(error) => {
                // Of a full disk the directory tells, once for all partitions.
                if !matches!(error, AppendError::Log(LogError::DiskFull)) {
                    tracing::warn!(partition = %self.partition.name, "cannot append what the leader sent: {error}");
                }
                Err(self.append_failure(&error, desk.now.monotonic))
            }
        }
    }

    fn append_failure(&self, error: &AppendError, now: MonotonicMs) -> LocalFailure {
        match error {
            AppendError::Log(error) => self.log_failure(error, now),
            AppendError::Batch(_) => LocalFailure::Corrupt,
            AppendError::Validation(_)
            | AppendError::Producer(_)
            | AppendError::LargerThanSegment { .. }
            | AppendError::OutOfOrder { .. }
            | AppendError::Empty => LocalFailure::Unfit,
        }
    }

    fn log_failure(&self, error: &LogError, now: MonotonicMs) -> LocalFailure {
        self.note_failure(error, now);
        match error {
            LogError::DiskFull => LocalFailure::DiskFull,
            LogError::Poisoned(_) | LogError::Io { .. } => LocalFailure::Storage,
            LogError::OutOfRange { .. } => LocalFailure::Unfit,
        }
    }

    fn report_cut(&mut self, to: Offset, result: Result<(), LogError>, desk: &mut Desk) {
        let result = match result {
            Ok(()) => {
                tracing::info!(partition = %self.partition.name, "the log is cut to {to}, as its leader has it");
                self.note_cut(to, desk);
                Ok(self.follower_log())
            }
            Err(error) => Err(self.log_failure(&error, desk.now.monotonic)),
        };
        self.report(desk, |core, now, out| core.truncated(result, now, out));
    }

    pub(super) fn note_cut(&mut self, to: Offset, desk: &Desk) {
        self.ledger = Ledger::new(&self.log.view());
        self.partition.set_cleaned(self.partition.cleaned().map(|cleaned| cleaned.min(to)));
        // The cut has to be on disk before what comes in its place counts as flushed.
        self.dirty_since.get_or_insert(desk.now.monotonic);
    }

    fn tell_stopped(&self, why: Stopped) {
        let name = &self.partition.name;
        match why {
            // The directory has told it.
            Stopped::Storage => {}
            Stopped::Unfit => {
                tracing::error!("{name} stops following: its log does not take its leader's records");
            }
            Stopped::LacksCommitted { from } => tracing::error!(
                "{name} stops following: its leader lacks committed records from offset {from} on. They are kept here; to \
                 give them up, set unclean.leader.election.enable of the topic"
            ),
        }
    }

    /// Ends the step of a follower: its leader's fetcher hears what it wants.
    pub(super) fn tell_wants(&mut self, desk: &mut Desk) {
        let log_end = self.log.log_end();
        let HostedRole::Following(following) = &mut self.role else { return };
        if following.lacks_room && !self.partition.directory().is_short() {
            following.lacks_room = false;
            following.core.has_room();
        }
        let is_behind = following.committed.is_none_or(|committed| log_end < committed);
        let throttled = self.config.follower.throttled && is_behind;
        let (leader, wants) = (following.core.leader(), following.core.wants(desk.now.monotonic));
        let news = Some((leader, wants, throttled));
        if following.told == news && !following.owes_word {
            return;
        }
        let told = std::mem::replace(&mut following.told, news);
        let is_word = std::mem::take(&mut following.owes_word);
        let (id, name) = (self.partition.id, self.partition.name.clone());
        if let Some((before, ..)) = told
            && before != leader
        {
            let gone = PartitionWants { id, name: name.clone(), wants: None, throttled, is_word };
            desk.outbox.want(before, gone);
        }
        desk.outbox.want(leader, PartitionWants { id, name, wants: Some(wants), throttled, is_word });
    }

    /// The leader is not fetched from any longer.
    pub(super) fn stop_following(&self, following: &Following, desk: &mut Desk) {
        if let Some((leader, _, throttled)) = following.told {
            let (id, name) = (self.partition.id, self.partition.name.clone());
            let is_word = following.owes_word;
            desk.outbox.want(leader, PartitionWants { id, name, wants: None, throttled, is_word });
        }
    }
}
