//! One writer thread's partitions. `step` takes a batch of messages and the time, and nothing else: the simulator calls it as
//! the thread does.
//!
//! Must not know sockets, protocol messages or other shards. Invariant: each message is dealt with in the order in which it
//! came; at the end of a step every touched partition has told its readers and its flusher.

use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, HashSet};
use std::hash::BuildHasherDefault;

use super::clock::Now;
use super::hosted::{AppendTerms, Desk, Hosted};
use super::lease::Lease;
use super::mailbox::Message;
use super::messages::{
    AppendAt, BeginVerification, DeleteRecords, DeleteRecordsError, Host, Produce, ProduceError, Promote,
    Promoted,
};
use super::outbox::Outlets;
use super::stall::Slot;
#[cfg(test)]
use crate::storage::log::Log;
use crate::storage::log::Unfit;
use crate::types::{MonotonicMs, NodeId, TopicIdPartition};

/// How long the newest batches stay in memory when nothing more is appended.
const TAIL_KEPT_MS: i64 = 30_000;

/// Hashes without a random key, so that a simulation goes through the partitions in the same order each time.
type Hashing = BuildHasherDefault<DefaultHasher>;

#[derive(Debug)]
pub struct Shard {
    hosted: HashMap<TopicIdPartition, Hosted, Hashing>,
    /// Partitions whose directory failed.
    offline: HashSet<TopicIdPartition>,
    touched: Vec<TopicIdPartition>,
    desk: Desk,
    lease: Lease,
    slot: Slot,
    /// No partition has something to do earlier.
    next_deadline: Option<MonotonicMs>,
    /// When to look for what can be forgotten: old batches in memory, expired producers.
    next_sweep: Option<MonotonicMs>,
    /// How often to look for that.
    sweep_every_ms: i64,
    is_closed: bool,
}

impl Shard {
    /// The shard with this index on the node `me`, which tells what it has to tell through `outlets`.
    pub fn new(index: usize, me: NodeId, outlets: Outlets) -> Shard {
        Shard {
            hosted: HashMap::default(),
            offline: HashSet::new(),
            touched: Vec::new(),
            desk: Desk::new(me, index, outlets),
            lease: Lease::forever(),
            slot: Slot::unwatched(),
            next_deadline: None,
            next_sweep: None,
            sweep_every_ms: TAIL_KEPT_MS,
            is_closed: false,
        }
    }

    /// The same, with a lease on being unfenced that may run out.
    #[must_use]
    pub fn with_lease(mut self, lease: Lease) -> Shard {
        self.lease = lease;
        self
    }

    /// The same, as a thread that calls the disk.
    #[must_use]
    pub fn with_slot(mut self, slot: Slot) -> Shard {
        self.slot = slot;
        self
    }

    /// The log of a partition here, for those who hold it against what it should be.
    #[cfg(test)]
    pub fn log(&self, id: &TopicIdPartition) -> Option<&Log> {
        self.hosted.get(id).map(|hosted| &hosted.log)
    }

    /// After [`Message::Close`] no message counts any more.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// When a [`Message::Tick`] is due, if nothing comes before.
    pub fn next_deadline(&self) -> Option<MonotonicMs> {
        self.next_deadline.into_iter().chain(self.next_sweep).min()
    }

    /// Deals with all messages, then settles the partitions that they touched.
    pub fn step(&mut self, batch: &mut Vec<Message>, now: Now) {
        // Whatever in a step takes time is a call of the disk.
        let _waiting = self.slot.begin_at(now.monotonic);
        self.desk.now = now;
        self.desk.lease_holds = self.lease.holds(now.monotonic);
        for message in batch.drain(..) {
            self.deal_with(message);
        }
        while let Some(id) = self.touched.pop() {
            let Some(hosted) = self.hosted.get_mut(&id) else { continue };
            hosted.settle(&mut self.desk);
            let deadline = hosted.next_deadline(now.monotonic);
            self.next_deadline = self.next_deadline.into_iter().chain(deadline).min();
        }
        self.desk.outbox.send();
    }

    fn deal_with(&mut self, message: Message) {
        match message {
            Message::Produce(produce) => self.produce(produce),
            Message::AppendAt(append) => self.append_at(append),
            Message::Flushed(reports) => {
                for report in reports {
                    self.with(report.partition, |hosted, desk| hosted.flushed(report.flushed, desk));
                }
            }
            Message::Fetched(answers) => {
                self.plan_sweep();
                for fetched in answers {
                    self.with(fetched.id, |hosted, desk| hosted.fetched(fetched.answer, desk));
                }
            }
            Message::FollowerFetched(fetches) => {
                for fetched in fetches {
                    self.with(fetched.id, |hosted, desk| hosted.follower_fetched(&fetched, desk));
                }
            }
            Message::IsrAltered(outcomes) => {
                for altered in outcomes {
                    self.with(altered.id, |hosted, desk| hosted.isr_altered(altered, desk));
                }
            }
            Message::DeleteRecords(request) => self.delete_records(request),
            Message::BeginVerification(begin) => self.begin_verification(begin),
            Message::Producers(id, reply) => {
                let producers = self.hosted.get(&id).map(Hosted::active_producers);
                // Nobody listens when the connection has gone away.
                let _ = reply.send(producers);
            }
            Message::Retain(id, reply) => {
                let mut more = false;
                self.with(id, |hosted, desk| more = hosted.retain(desk));
                let _ = reply.send(more);
            }
            Message::Compact(id, compact) => self.with(id, |hosted, desk| hosted.compact(*compact, desk)),
            Message::Damaged(id, damage) => self.with(id, |hosted, desk| hosted.note_damage(&damage, desk)),
            Message::Mend(id, patch, reply) => {
                let mut mended = Err(Unfit::Gone);
                self.with(id, |hosted, desk| mended = hosted.mend(&patch, desk));
                let _ = reply.send(mended);
            }
            Message::Promote(id, promote) => self.promote(id, *promote),
            Message::Host(host) => self.host(*host),
            Message::Assume(id, role) => self.with(id, |hosted, desk| hosted.assume(role, desk)),
            Message::Configure(id, log, config) => {
                self.with(id, |hosted, desk| hosted.configure(log, config, desk));
            }
            Message::Release(id, reply) => {
                self.offline.remove(&id);
                let log = self.hosted.remove(&id).map(|hosted| hosted.release(&mut self.desk));
                let _ = reply.send(log);
            }
            Message::Fence(reply) => {
                let _ = reply.send(());
            }
            Message::DirectoryFailed(index) => self.directory_failed(index),
            Message::Tick => self.tick(),
            Message::Close(reply) => {
                let close =
                    |(_, hosted): (_, Hosted)| (hosted.partition.clone(), hosted.close(&mut self.desk));
                let logs = self.hosted.drain().map(close).collect();
                self.is_closed = true;
                let _ = reply.send(logs);
            }
        }
    }

    fn produce(&mut self, produce: Produce) {
        let terms = AppendTerms { acks: produce.acks, origin: produce.origin, deadline: produce.deadline };
        for append in produce.appends {
            let id = append.partition;
            if !self.hosted.contains_key(&id) {
                append.reply.answer(Err(self.absent(&id, ProduceError::Offline, ProduceError::NotHosted)));
                continue;
            }
            self.with(id, |hosted, desk| hosted.append(append, terms, desk));
            self.plan_sweep();
        }
    }

    fn append_at(&mut self, append: AppendAt) {
        let id = append.partition;
        if self.hosted.contains_key(&id) {
            self.with(id, |hosted, desk| hosted.append_at(append, desk));
            self.plan_sweep();
        } else {
            append.reply.answer(Err(self.absent(&id, ProduceError::Offline, ProduceError::NotHosted)));
        }
    }

    fn delete_records(&mut self, request: DeleteRecords) {
        let id = request.partition;
        if self.hosted.contains_key(&id) {
            self.with(id, |hosted, desk| hosted.delete_records(request, desk));
        } else {
            let error = self.absent(&id, DeleteRecordsError::Offline, DeleteRecordsError::NotHosted);
            request.reply.answer(Err(error));
        }
    }

    fn begin_verification(&mut self, begin: BeginVerification) {
        let began = match self.hosted.get_mut(&begin.partition) {
            Some(hosted) => hosted.begin_verification(&begin.batch, &self.desk),
            None => Err(self.absent(&begin.partition, ProduceError::Offline, ProduceError::NotHosted)),
        };
        self.plan_sweep();
        begin.reply.answer(began);
    }

    fn absent<E>(&self, id: &TopicIdPartition, offline: E, not_hosted: E) -> E {
        if self.offline.contains(id) { offline } else { not_hosted }
    }

    fn host(&mut self, host: Host) {
        let id = host.partition.id;
        if !host.partition.directory().is_online() {
            // It failed while the log was on its way here.
            self.hosted.insert(id, Hosted::new(host, &mut self.desk));
            return self.take_offline(id);
        }
        let hosted = Hosted::new(host, &mut self.desk);
        // The broker's setting, and so the same for all.
        self.sweep_every_ms = hosted.producer_check_interval_ms().min(TAIL_KEPT_MS);
        self.plan_sweep();
        assert!(self.hosted.insert(id, hosted).is_none(), "a partition is hosted once");
        self.with(id, |_, _| ());
    }

    fn promote(&mut self, id: TopicIdPartition, promote: Promote) {
        if self.hosted.contains_key(&id) {
            self.with(id, |hosted, desk| hosted.promote(promote, desk));
        } else {
            let Promote { future, reply, .. } = promote;
            let _ = reply.send(Promoted::Gone(future));
        }
    }

    fn directory_failed(&mut self, index: usize) {
        let lost = self.hosted.values().filter(|hosted| hosted.partition.directory().index() == index);
        let lost: Vec<TopicIdPartition> = lost.map(|hosted| hosted.partition.id).collect();
        for id in lost {
            self.take_offline(id);
        }
    }

    fn take_offline(&mut self, id: TopicIdPartition) {
        if let Some(hosted) = self.hosted.remove(&id) {
            hosted.take_offline(&mut self.desk);
            self.offline.insert(id);
        }
    }

    fn tick(&mut self) {
        let now = self.desk.now;
        if self.next_deadline.is_some_and(|at| at <= now.monotonic) {
            // Deadlines that were met meanwhile are forgotten here: settling looks at all of them anew.
            self.next_deadline = None;
            for (id, hosted) in &mut self.hosted {
                hosted.tick(&mut self.desk);
                if !std::mem::replace(&mut hosted.is_touched, true) {
                    self.touched.push(*id);
                }
            }
        }
        if self.next_sweep.is_some_and(|at| at <= now.monotonic) {
            let mut keeps = false;
            for hosted in self.hosted.values_mut() {
                keeps |= hosted.sweep(now, TAIL_KEPT_MS);
            }
            self.next_sweep = keeps.then(|| now.monotonic.plus(self.sweep_every_ms));
        }
    }

    fn plan_sweep(&mut self) {
        self.next_sweep.get_or_insert(self.desk.now.monotonic.plus(self.sweep_every_ms));
    }

    /// Does something to a partition that is hosted, and has it settled at the end of the step.
    fn with(&mut self, id: TopicIdPartition, act: impl FnOnce(&mut Hosted, &mut Desk)) {
        let Some(hosted) = self.hosted.get_mut(&id) else { return };
        hosted.heed_lease(&mut self.desk);
        act(hosted, &mut self.desk);
        if !std::mem::replace(&mut hosted.is_touched, true) {
            self.touched.push(id);
        }
    }
}
