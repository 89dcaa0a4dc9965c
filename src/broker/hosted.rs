//! One partition in its shard: the log and the replica core, joined. What the core decides is carried out here.
//!
//! Must not know other partitions or threads. Invariant: after each event the core's effects have been carried out, and the
//! log's offsets are those that the core knows.

use std::sync::Arc;

use bytes::Bytes;

use super::clock::Now;
use super::damaged::Rebuild;
use super::flusher;
use super::following::Following;
use super::ledger::Ledger;
use super::messages::{
    Append, AppendAt, DeleteRecords, DeleteRecordsError, FollowerFetched, Host, IsrAltered, IsrProposal,
    ProduceError, Produced, ReplicaSettings, RoleSpec,
};
use super::outbox::{Outbox, Outlets};
use super::owed::{Answer, Owed};
use super::partitions::{Leadership, Partition, Role};
use super::turned_away::{Sent, TurnedAway};
use crate::fault::{self, Fault};
use crate::metadata::topics::name::is_internal;
use crate::replica::{AckError, Acks, Effect, FollowerEffect, Leader, LogPosition, Registration};
use crate::storage::log::producer_state::{ActiveProducer, Coordinated, FirstBatch, Guard};
use crate::storage::log::{self, AppendError, Log, LogConfig, LogError, Origin};
use crate::types::{LeaderEpoch, MonotonicMs, NodeId, Offset, TimestampMs};

/// How often a leader that is held back looks whether its lease has been renewed.
const LEASE_RETRY_MS: i64 = 100;

/// What a shard lends its partitions for one step.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) me: NodeId,
    pub(super) shard: usize,
    pub(super) now: Now,
    pub(super) owed: Owed,
    pub(super) outbox: Outbox,
    pub(super) effects: Vec<Effect>,
    pub(super) follower_effects: Vec<FollowerEffect>,
    /// This broker may take itself for unfenced.
    pub(super) lease_holds: bool,
}

impl Desk {
    pub(super) fn new(me: NodeId, shard: usize, outlets: Outlets) -> Desk {
        let (now, owed, effects, follower_effects) = Default::default();
        let outbox = Outbox::new(outlets);
        Desk { me, shard, now, owed, outbox, effects, follower_effects, lease_holds: true }
    }
}

/// What one request's appends have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct AppendTerms {
    pub(super) acks: Option<Acks>,
    pub(super) origin: Origin,
    pub(super) deadline: MonotonicMs,
}

#[derive(Debug)]
pub(super) struct Hosted {
    pub(super) partition: Arc<Partition>,
    pub(super) log: Log,
    pub(super) config: ReplicaSettings,
    pub(super) role: HostedRole,
    pub(super) ledger: Ledger,
    /// There are appends that no flush work covers; since when.
    pub(super) dirty_since: Option<MonotonicMs>,
    /// How many of them producers wait for.
    pub(super) dirty_appends: usize,
    pub(super) segments_flushed: usize,
    pub(super) last_append: MonotonicMs,
    pub(super) rebuild: Rebuild,
    turned_away: TurnedAway,
    /// It is of a topic that coordinators keep their state in, which may use what is kept in reserve.
    is_internal: bool,
    /// It is on the list of partitions to settle at the end of the step.
    pub(super) is_touched: bool,
}

#[derive(Debug)]
pub(super) enum HostedRole {
    Leading(Box<Leader>),
    Following(Box<Following>),
    /// Between two roles.
    None,
}

impl Hosted {
    pub(super) fn new(host: Host, desk: &mut Desk) -> Hosted {
        let Host { partition, log, config, role } = host;
        let view = log.view();
        let is_internal = is_internal(&partition.name.topic);
        let mut hosted = Hosted {
            partition,
            config,
            role: HostedRole::None,
            ledger: Ledger::new(&view),
            dirty_since: None,
            dirty_appends: 0,
            segments_flushed: view.segment_count(),
            last_append: desk.now.monotonic,
            rebuild: Rebuild::default(),
            turned_away: TurnedAway::default(),
            is_internal,
            is_touched: false,
            log,
        };
        hosted.partition.set_throttled(config.leader_throttled);
        hosted.partition.set_counts_flushed(config.leader.durable_acks);
        hosted.assume(role, desk);
        hosted
    }

    /// Leads or follows from now on.
    pub(super) fn assume(&mut self, role: RoleSpec, desk: &mut Desk) {
        match role {
            RoleSpec::Rebuild(term) => return self.rebuild(term, desk),
            RoleSpec::Lead(registration) => {
                self.end_rebuild(desk);
                self.lead(&registration, desk);
            }
            RoleSpec::Follow(term) => self.follow(term, desk),
        }
        self.rebuild = Rebuild::None;
    }

    fn lead(&mut self, registration: &Registration, desk: &mut Desk) {
        let now = desk.now.monotonic;
        match &mut self.role {
            HostedRole::Leading(leader) => {
                let epoch = leader.leader_epoch();
                if registration.leader_epoch > epoch {
                    self.log.assign_epoch_start(registration.leader_epoch);
                }
                leader.registration(registration, now, &mut desk.effects);
            }
            HostedRole::Following(_) | HostedRole::None => {
                self.resign(desk);
                self.log.assign_epoch_start(registration.leader_epoch);
                let (log, config) = (self.position(), self.config.leader);
                let leader = Leader::new(desk.me, registration, log, config, now, &mut desk.effects);
                self.role = HostedRole::Leading(Box::new(leader));
            }
        }
        self.carry_out(desk);
        let HostedRole::Leading(leader) = &self.role else { return };
        let leadership = Leadership {
            role: Role::Leader,
            leader: desk.me,
            leader_epoch: leader.leader_epoch(),
            epoch_start: Some(leader.epoch_start()),
        };
        if self.partition.leadership() != leadership {
            self.partition.begin_term(leadership, leader.watches_followers());
            // Followers that wait for records of the term before hear that it is over.
            self.partition.waiters.wake_all();
        }
    }

    /// Where the log stands.
    pub(super) fn position(&self) -> LogPosition {
        LogPosition {
            log_start: self.log.log_start(),
            high_watermark: self.log.high_watermark(),
            flushed: self.log.flushed(),
            log_end: self.log.log_end(),
        }
    }

    /// Ends the role: what is parked is answered, and the leader is no longer fetched from.
    pub(super) fn resign(&mut self, desk: &mut Desk) {
        match std::mem::replace(&mut self.role, HostedRole::None) {
            HostedRole::Leading(leader) => {
                leader.resign(&mut desk.effects);
                self.carry_out(desk);
                self.partition.set_watches_followers(false);
                self.partition.read_replicas.publish(std::iter::empty());
            }
            HostedRole::Following(following) => self.stop_following(&following, desk),
            HostedRole::None => {}
        }
    }

    pub(super) fn append(&mut self, append: Append, terms: AppendTerms, desk: &mut Desk) {
        let AppendTerms { acks, origin, deadline } = terms;
        let sent = || Sent::of(&append.records).filter(|_| origin == Origin::Client);
        let written = self
            .check_append(acks, desk)
            .and_then(|()| self.check_order(sent, desk))
            .and_then(|()| self.write(&append.records, origin, append.coordinated, desk));
        self.note_refusal(sent, &written, desk);
        match (written, acks) {
            (Err(error), _) => append.reply.answer(Err(error)),
            (Ok((_, produced)), None) => append.reply.answer(Ok(produced)),
            (Ok((end, produced)), Some(acks)) => {
                self.await_ack(Answer::Produce(append.reply, produced, acks), acks, end, deadline, desk);
            }
        }
        self.carry_out(desk);
    }

    /// Appends what a coordinator has decided, if the log is as it was when that was decided.
    pub(super) fn append_at(&mut self, append: AppendAt, desk: &mut Desk) {
        let AppendAt { leader_epoch, log_end, batches, reply, .. } = append;
        let mut result = self.check_append(Some(Acks::All), desk).and_then(|()| {
            let is_as_known = self.leader_epoch() == Some(leader_epoch) && self.log.log_end() == log_end;
            let (log_append_time, log_start) = (TimestampMs::NONE, self.log.log_start());
            let produced = Produced { base_offset: log_end, log_append_time, log_start };
            if is_as_known { Ok((log_end, produced)) } else { Err(ProduceError::Moved) }
        });
        for (batch, coordinated) in batches {
            if result.is_ok() {
                result = self.write(&batch, Origin::Coordinator, coordinated, desk);
            }
        }
        match result {
            Err(error) => reply.answer(Err(error)),
            Ok((end, produced)) => {
                let answer = Answer::Produce(reply, produced, Acks::All);
                self.await_ack(answer, Acks::All, end, MonotonicMs(i64::MAX), desk);
            }
        }
        self.carry_out(desk);
    }

    fn leader_epoch(&self) -> Option<LeaderEpoch> {
        match &self.role {
            HostedRole::Leading(leader) => Some(leader.leader_epoch()),
            HostedRole::Following(_) | HostedRole::None => None,
        }
    }

    fn check_append(&self, acks: Option<Acks>, desk: &Desk) -> Result<(), ProduceError> {
        let HostedRole::Leading(leader) = &self.role else { return Err(ProduceError::NotLeader) };
        if !desk.lease_holds && leader.others_may_lead() {
            // Another broker may lead by now.
            return Err(ProduceError::NotLeader);
        }
        acks.map_or(Ok(()), |acks| leader.check_append(acks)).map_err(ProduceError::NotEnoughReplicas)
    }

    /// What comes behind a batch that was turned away is not taken before that one.
    fn check_order(&mut self, sent: impl Fn() -> Option<Sent>, desk: &Desk) -> Result<(), ProduceError> {
        if self.turned_away.is_empty() || fault::is_active(Fault::ForgetsTurnedAway) {
            return Ok(());
        }
        sent().map_or(Ok(()), |sent| self.turned_away.check(sent, self.log.producers(), desk.now.monotonic))
    }

    fn note_refusal<T>(
        &mut self,
        sent: impl Fn() -> Option<Sent>,
        result: &Result<T, ProduceError>,
        desk: &Desk,
    ) {
        if let Err(error) = result
            && let Some(sent) = sent()
        {
            self.turned_away.note(sent, error, self.log.producers(), desk.now.monotonic);
        }
    }

    /// Writes one batch to the log. Gives where it ends, and what is told of it.
    fn write(
        &mut self,
        records: &Bytes,
        origin: Origin,
        coordinated: Coordinated,
        desk: &mut Desk,
    ) -> Result<(Offset, Produced), ProduceError> {
        let Some(epoch) = self.leader_epoch() else { return Err(ProduceError::NotLeader) };
        let now = desk.now.wall;
        // What is too large for the topic is refused for that: nobody must be told to come again with it.
        let is_taken = records.len() <= self.log.config().max_message_bytes as usize;
        let needs_room = origin == Origin::Client && is_taken && !self.has_room_for(records.len(), desk);
        // What is there already needs none.
        if needs_room && !self.log.holds(records) {
            return Err(ProduceError::Append(AppendError::Log(LogError::DiskFull)));
        }
        let HostedRole::Leading(leader) = &mut self.role else { return Err(ProduceError::NotLeader) };
        let appended = match self.log.append_coordinated(records, epoch, origin, coordinated, now) {
            Ok(appended) => appended,
            Err(error) => {
                if let AppendError::Log(error) = &error {
                    self.note_failure(error, desk.now.monotonic);
                }
                return Err(ProduceError::Append(error));
            }
        };
        if !appended.duplicate {
            self.ledger.appended(self.log.log_end(), records.len());
            self.dirty_since.get_or_insert(desk.now.monotonic);
            self.dirty_appends += 1;
            self.last_append = desk.now.monotonic;
            leader.append_done(self.log.log_end(), desk.now.monotonic, &mut desk.effects);
        }
        let produced = Produced {
            base_offset: appended.first_offset,
            log_append_time: appended.log_append_time,
            log_start: appended.log_start,
        };
        Ok((appended.last_offset.plus(1), produced))
    }

    fn await_ack(
        &mut self,
        answer: Answer,
        acks: Acks,
        upto: Offset,
        deadline: MonotonicMs,
        desk: &mut Desk,
    ) {
        let HostedRole::Leading(leader) = &mut self.role else { return };
        let token = desk.owed.park(answer);
        leader.await_ack(token, acks, upto, deadline, &mut desk.effects);
    }

    pub(super) fn flushed(&mut self, flushed: log::Flushed, desk: &mut Desk) {
        if self.log.mark_flushed(flushed) {
            self.tell_flushed(desk);
        }
    }

    /// The core hears how far the log is on the disk.
    pub(super) fn tell_flushed(&mut self, desk: &mut Desk) {
        match &mut self.role {
            HostedRole::Leading(leader) => {
                leader.flushed(self.log.flushed(), desk.now.monotonic, &mut desk.effects);
                self.carry_out(desk);
            }
            HostedRole::Following(following) => following.core.flushed(self.log.flushed()),
            HostedRole::None => {}
        }
    }

    /// A follower has fetched. What it says counts for the term in which its fetch was served.
    pub(super) fn follower_fetched(&mut self, fetched: &FollowerFetched, desk: &mut Desk) {
        let HostedRole::Leading(leader) = &mut self.role else { return };
        if leader.leader_epoch() != fetched.leader_epoch {
            return;
        }
        // A fetch that the metadata of now no longer allows was answered before that was known.
        let _ = leader.follower_fetched(&fetched.fetch, desk.now.monotonic, &mut desk.effects);
        self.carry_out(desk);
    }

    pub(super) fn isr_altered(&mut self, altered: IsrAltered, desk: &mut Desk) {
        let HostedRole::Leading(leader) = &mut self.role else { return };
        leader.alter_done(altered.proposed_at, altered.outcome, desk.now.monotonic, &mut desk.effects);
        self.carry_out(desk);
    }

    /// A coordinator is going to be asked whether this batch may begin a transaction.
    pub(super) fn begin_verification(
        &mut self,
        batch: &FirstBatch,
        desk: &Desk,
    ) -> Result<Option<Guard>, ProduceError> {
        let sent = || Some(Sent::from(batch));
        let began = match &self.role {
            HostedRole::Leading(_) => self.check_order(sent, desk).and_then(|()| {
                let began = self.log.begin_verification(batch, desk.now.wall);
                began.map_err(|error| ProduceError::Append(AppendError::Producer(error)))
            }),
            _ => Err(ProduceError::NotLeader),
        };
        self.note_refusal(sent, &began, desk);
        began
    }

    /// The producers that this replica remembers.
    pub(super) fn active_producers(&self) -> Vec<ActiveProducer> {
        self.log.producers().active_producers()
    }

    pub(super) fn delete_records(&mut self, request: DeleteRecords, desk: &mut Desk) {
        if !matches!(self.role, HostedRole::Leading(_)) {
            return request.reply.answer(Err(DeleteRecordsError::NotLeader));
        }
        if self.log.config().compact && !self.log.config().delete {
            return request.reply.answer(Err(DeleteRecordsError::CompactedTopic));
        }
        let high_watermark = self.log.high_watermark();
        let upto = request.upto.unwrap_or(high_watermark);
        if upto < Offset::ZERO || upto > high_watermark {
            return request.reply.answer(Err(DeleteRecordsError::OutOfRange { upto, high_watermark }));
        }
        if let Err(error) = self.start_log_at(upto, desk) {
            return request.reply.answer(Err(DeleteRecordsError::Log(error)));
        }
        let HostedRole::Leading(leader) = &mut self.role else { return };
        leader.log_start_moved(self.log.log_start(), &mut desk.effects);
        let token = desk.owed.park(Answer::DeleteRecords(request.reply));
        leader.await_low_watermark(token, upto, request.deadline, &mut desk.effects);
        self.carry_out(desk);
    }

    pub(super) fn configure(&mut self, log: Arc<LogConfig>, config: ReplicaSettings, desk: &mut Desk) {
        self.partition.set_log_config(log.clone());
        self.log.update_config(log);
        self.config = config;
        self.partition.set_throttled(config.leader_throttled);
        self.partition.set_counts_flushed(config.leader.durable_acks);
        match &mut self.role {
            HostedRole::Leading(leader) => {
                leader.configure(config.leader, desk.now.monotonic, &mut desk.effects);
                self.carry_out(desk);
            }
            HostedRole::Following(_) => self.configure_follower(desk),
            HostedRole::None => {}
        }
    }

    /// What the leader may do depends on whether this broker may take itself for unfenced; looked at before all else.
    pub(super) fn heed_lease(&mut self, desk: &mut Desk) {
        if let HostedRole::Leading(leader) = &mut self.role {
            leader.lease(desk.lease_holds, desk.now.monotonic, &mut desk.effects);
            self.carry_out(desk);
        }
    }

    pub(super) fn tick(&mut self, desk: &mut Desk) {
        self.heed_lease(desk);
        if let HostedRole::Leading(leader) = &mut self.role {
            leader.tick(desk.now.monotonic, &mut desk.effects);
            self.carry_out(desk);
        }
    }

    /// Forgets batches in memory that are older than `kept_ms`, and producers that have expired. True while there is something
    /// to forget later.
    pub(super) fn sweep(&mut self, now: Now, kept_ms: i64) -> bool {
        self.log.expire_tail(now.wall.minus(kept_ms));
        self.log.expire_producers(now.wall);
        self.turned_away.forget(now.monotonic);
        self.tell_forgotten_producers();
        let is_idle = self.last_append.plus(kept_ms) <= now.monotonic && self.turned_away.is_empty();
        !is_idle || !self.log.producers().is_empty()
    }

    /// One line between two sweeps, however many producer ids clients use up.
    fn tell_forgotten_producers(&mut self) {
        let count = self.log.take_forgotten_producers();
        if count > 0 {
            tracing::warn!(
                partition = %self.partition.name,
                "{count} idempotent producers were forgotten early, the ones that wrote longest ago: clients use too many producer ids (producer.state.max.per.partition, producer.state.max)"
            );
        }
    }

    pub(super) fn producer_check_interval_ms(&self) -> i64 {
        self.log.config().producer_check_interval_ms
    }

    pub(super) fn next_deadline(&self, now: MonotonicMs) -> Option<MonotonicMs> {
        let core = match &self.role {
            HostedRole::Leading(leader) => {
                let again = leader.is_held_back().then(|| now.plus(LEASE_RETRY_MS));
                leader.next_deadline().into_iter().chain(again).min()
            }
            HostedRole::Following(following) => following.wakes_at(now),
            HostedRole::None => None,
        };
        let flush_ms = Some(self.log.config().flush_ms).filter(|ms| *ms < i64::MAX);
        let flush = self.dirty_since.zip(flush_ms).map(|(since, ms)| since.plus(ms));
        core.into_iter().chain(flush).min()
    }

    /// Ends a step: readers hear of what is new, the flusher of what must be synced.
    pub(super) fn settle(&mut self, desk: &mut Desk) {
        self.is_touched = false;
        match &self.role {
            HostedRole::Leading(leader) => {
                self.partition.set_watches_followers(leader.watches_followers());
                self.partition.read_replicas.publish(leader.in_sync_followers());
            }
            HostedRole::Following(_) => self.tell_wants(desk),
            HostedRole::None => {}
        }
        if let Some(doomed) = self.log.take_doomed() {
            // Whoever reads what was cut off has to come again anyway.
            self.partition.directory().doom(doomed, desk.now.monotonic);
        }
        let view = self.log.view();
        self.partition.waiters.publish(self.ledger.settle(&view));
        if self.is_flush_due(view.segment_count(), desk.now.monotonic) {
            self.dirty_since = None;
            self.segments_flushed = view.segment_count();
            let appends = std::mem::take(&mut self.dirty_appends);
            if let Some(work) = self.log.flush_work() {
                flusher::submit(&self.partition.directory(), desk.shard, self.partition.id, work, appends);
            }
        }
    }

    /// At once when acknowledgements wait for it, here or at the leader; else by `flush.messages`, by `flush.ms`, and when a segment was rolled, so
    /// that recovery never has more than the active segment to look at.
    fn is_flush_due(&self, segments: usize, now: MonotonicMs) -> bool {
        let Some(since) = self.dirty_since else { return false };
        let config = self.log.config();
        let leader_waits =
            matches!(&self.role, HostedRole::Following(following) if following.leader_counts_flushed);
        config.flush_before_ack
            || leader_waits
            || self.log.has_unsynced_mends()
            || self.log.log_end().since(self.log.flushed()) >= config.flush_messages
            || since.plus(config.flush_ms) <= now
            || segments > self.segments_flushed
    }

    /// Lets go of the partition because the broker stops. What was appended becomes durable and is acknowledged before the
    /// answers that cannot be given leave.
    pub(super) fn close(mut self, desk: &mut Desk) -> Log {
        self.heed_lease(desk);
        if self.log.flushed() < self.log.log_end() {
            match self.log.flush() {
                Ok(()) => {
                    if let HostedRole::Leading(leader) = &mut self.role {
                        leader.flushed(self.log.flushed(), desk.now.monotonic, &mut desk.effects);
                        self.carry_out(desk);
                    }
                }
                Err(error) => self.note_failure(&error, desk.now.monotonic),
            }
        }
        self.release(desk)
    }

    /// Lets go of the partition: nobody writes to it from here on.
    pub(super) fn release(mut self, desk: &mut Desk) -> Log {
        self.resign(desk);
        let leader_epoch = self.partition.leadership().leader_epoch;
        self.partition.set_leadership(Leadership {
            role: Role::Follower,
            leader: NodeId::NONE,
            leader_epoch,
            epoch_start: None,
        });
        self.partition.waiters.wake_all();
        self.log
    }

    /// The log directory is out of service: what is parked is answered so.
    pub(super) fn take_offline(mut self, desk: &mut Desk) {
        match std::mem::replace(&mut self.role, HostedRole::None) {
            HostedRole::Leading(leader) => leader.resign(&mut desk.effects),
            HostedRole::Following(following) => self.stop_following(&following, desk),
            HostedRole::None => {}
        }
        for effect in desk.effects.drain(..) {
            if let Effect::Answer { token, .. } = effect {
                desk.owed.take(token).send_offline();
            }
        }
        let leadership = Leadership { role: Role::Offline, epoch_start: None, ..self.partition.leadership() };
        self.partition.set_leadership(leadership);
        self.partition.waiters.wake_all();
    }

    pub(super) fn carry_out(&mut self, desk: &mut Desk) {
        let Desk { effects, owed, outbox, lease_holds, .. } = desk;
        for effect in effects.drain(..) {
            match effect {
                Effect::HighWatermark(at) => self.log.set_high_watermark(at),
                Effect::Answer { token, result } => {
                    let (low_watermark, others_may_lead) = match &self.role {
                        HostedRole::Leading(leader) => (leader.low_watermark(), leader.others_may_lead()),
                        HostedRole::Following(_) | HostedRole::None => (self.log.log_start(), true),
                    };
                    let answer = owed.take(token);
                    let rests_on_lease = !*lease_holds && others_may_lead && answer.is_of_leader_alone();
                    let result = if rests_on_lease { Err(AckError::NotLeader) } else { result };
                    answer.send(result, low_watermark);
                }
                Effect::AlterPartition(alter) => outbox.propose(IsrProposal { id: self.partition.id, alter }),
            }
        }
    }

    /// Whether so many bytes of a client's records may be written.
    pub(super) fn has_room_for(&self, bytes: usize, desk: &Desk) -> bool {
        self.is_internal || self.partition.directory().admits(bytes, desk.now.monotonic)
    }

    /// A full disk refuses appends and goes on; any other failure puts the directory out of service.
    pub(super) fn note_failure(&self, error: &LogError, now: MonotonicMs) {
        if matches!(error, LogError::DiskFull) {
            self.partition.directory().note_full(now);
        }
        if self.log.failure().is_some() {
            self.partition.directory().fail(&format!("write to {}", self.partition.name), error);
        }
    }
}
