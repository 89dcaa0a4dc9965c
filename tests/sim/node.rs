//! One node: a machine with disks and a clock, on which a process runs or does not.
//!
//! Must not know other nodes. Invariant: a process runs only while its machine is on, with the clock of its machine.

use std::path::PathBuf;
use std::sync::Arc;

use super::context::{Context, Event, Ms, ProcessEvent, note};
use super::network::{Body, Caller};
use super::plan::Plan;
use super::process::{Machine, Process};
use crate::broker::clock::{self, Now};
use crate::config::{Sources, load};
use crate::metadata::Image;
use crate::storage::sim_disk::SimDisk;
use crate::types::{MonotonicMs, NodeId, Offset, TimestampMs, TopicIdPartition, Uuid};

/// When the simulation begins, on wall clocks that are right.
pub const WALL_BASE: i64 = 1_700_000_000_000;

fn new_disk() -> SimDisk {
    let disk = SimDisk::new();
    disk.lose_failed_syncs();
    disk
}

pub struct Node {
    pub me: NodeId,
    pub disk: SimDisk,
    machine: Machine,
    pub process: Option<Process>,
    pub paused_until: Ms,
    /// By how much the wall clock is wrong.
    pub wall_offset: Ms,
    wipes: u128,
}

impl Node {
    pub fn new(me: NodeId, plan: &Plan) -> Node {
        let disk = new_disk();
        let overrides = [
            ("replica.lag.time.max.ms", plan.lag_time_max_ms.to_string()),
            ("replica.fetch.backoff.ms", "300".to_owned()),
        ];
        let mut overrides = overrides.to_vec();
        if plan.transactions.is_some() {
            let interval = "transaction.abort.timed.out.transaction.cleanup.interval.ms";
            overrides.push((interval, "200".to_owned()));
            let session_ms = super::members::SESSION_MS.to_string();
            overrides.extend([
                ("offsets.commit.timeout.ms", "2000".to_owned()),
                ("group.initial.rebalance.delay.ms", "50".to_owned()),
                ("group.consumer.min.session.timeout.ms", session_ms.clone()),
                ("group.consumer.session.timeout.ms", session_ms),
                ("group.consumer.min.heartbeat.interval.ms", "100".to_owned()),
                ("group.consumer.heartbeat.interval.ms", "100".to_owned()),
                ("group.consumer.assignment.interval.ms", "0".to_owned()),
            ]);
        }
        if plan.lazy.contains(&me.0) {
            overrides.push(("log.flush.before.ack", "false".to_owned()));
        }
        let overrides = overrides.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        let config = load(&Sources { overrides, ..Sources::default() }).expect("a configuration");
        let machine = Machine {
            me,
            disk: Arc::new(disk.clone()),
            paths: (0..plan.directories).map(|at| PathBuf::from(format!("/d{at}"))).collect(),
            directory_ids: Vec::new(),
            layers: config.layers,
        };
        let mut node = Node { me, disk, machine, process: None, paused_until: 0, wall_offset: 0, wipes: 0 };
        node.name_directories();
        node
    }

    fn name_directories(&mut self) {
        let base = 0xd1_0000_0000 + u128::from(self.me.0.unsigned_abs()) * 0x1_0000 + self.wipes * 0x100;
        let count = self.machine.paths.len() as u128;
        self.machine.directory_ids = (0..count).map(|at| Uuid::from_u128(base + at)).collect();
    }

    /// What the clocks here show, which from now on hold for all that is done.
    fn now(&self, context: &Context) -> Now {
        let now = Now {
            wall: TimestampMs(WALL_BASE + context.now + self.wall_offset),
            monotonic: MonotonicMs(context.now),
        };
        clock::simulate(Some(now));
        self.disk.set_now(now.wall);
        now
    }

    /// Switches the machine on; tries again when the disk does not let the process start.
    pub fn start(&mut self, context: &mut Context, image: &Arc<Image>) {
        if self.process.is_some() {
            return;
        }
        self.now(context);
        // What it has of the metadata log itself may be old.
        self.process = Process::start(context, &self.machine, image.clone());
        if self.process.is_none() {
            // Whatever the attempt holds is void.
            self.disk.kill();
            context.after(400, Event::Start { node: self.me.0 });
        }
    }

    pub fn on(&mut self, context: &mut Context, life: u64, what: ProcessEvent) {
        let now = self.now(context);
        if let Some(process) = self.process.as_mut().filter(|process| process.life == life) {
            process.on(context, now, what);
        }
    }

    /// A packet for the process here.
    pub fn arrives(&mut self, context: &mut Context, body: Body) {
        let now = self.now(context);
        let me = self.me.0;
        let Some(process) = &mut self.process else { return };
        let is_mine = |life: u64| life == process.life;
        match body {
            Body::Published { image, term, leader } => {
                process.learn(&image);
                process.learn_of(term, leader);
            }
            Body::Answer { caller: Caller::Process { node, life }, call, image, answer }
                if node == me && is_mine(life) =>
            {
                // An answer leaves when the metadata that it speaks of is there.
                process.learn(&image);
                process.answered(context, call, answer);
            }
            Body::Produce(request) => process.produce(context, request, now),
            Body::Fetch(fetch) => process.serve(context, fetch, now),
            Body::Fetched(answer) if is_mine(answer.life) => process.fetched(context, answer),
            Body::Ask(ask) => process.asks(*ask),
            Body::PeerAsk(ask) => process.peer_asks(ask),
            Body::PeerTold { call, told } => process.peer_told(call, told),
            Body::AskRecords { node, call, request } => process.give_records(context, (node, call), &request),
            Body::Records { call, response } => process.repairing.told(call, response),
            _ => {}
        }
        process.wake(context);
    }

    /// Somebody asks the broker here to delete records.
    pub fn delete_records(&mut self, context: &mut Context, id: TopicIdPartition, upto: Offset) {
        self.now(context);
        if let Some(process) = &mut self.process {
            process.delete_records(context, id, upto);
        }
    }

    /// The process of another node is gone.
    pub fn lost_peer(&mut self, context: &mut Context, peer: i32) {
        if let Some(process) = &mut self.process {
            process.replication.disconnect(context, peer);
        }
    }

    /// Ends the process; with `loses_power`, the machine too.
    pub fn kill(&mut self, context: &mut Context, loses_power: bool) {
        if self.process.take().is_some() {
            note!(context, "{} ends{}", self.me, if loses_power { " without power" } else { "" });
        }
        self.end(context, loses_power);
        self.paused_until = 0;
    }

    /// Ends the process in an orderly way.
    pub fn close(&mut self, context: &mut Context) {
        let now = self.now(context);
        if let Some(mut process) = self.process.take() {
            note!(context, "{} closes", self.me);
            process.close(context, now);
        }
        self.end(context, false);
    }

    /// A machine on whose disk a sync has failed is not trusted before it has been switched off and on.
    fn end(&mut self, context: &mut Context, loses_power: bool) {
        if loses_power || self.disk.has_lost() {
            self.disk.crash(context.chance.next());
        } else {
            self.disk.kill();
        }
    }

    /// The machine gets new disks.
    pub fn wipe(&mut self, context: &mut Context) {
        note!(context, "{} is wiped", self.me);
        self.disk = new_disk();
        self.machine.disk = Arc::new(self.disk.clone());
        self.wipes += 1;
        self.name_directories();
    }
}
