//! What a seed makes of the cluster and of its bad luck: sizes, settings, which faults there are and how often.
//!
//! Must not know how faults are done. Invariant: a plan is a function of its seed.

use super::chance::Chance;
use crate::metadata::topics::name::{CONSUMER_OFFSETS, TRANSACTION_STATE};

/// One seed of so many has transactions.
const TRANSACTIONS_EVERY: u64 = 3;

/// So many seeds in a thousand, of those with several controllers, have controllers that are overtaken, and little else.
const OVERTAKEN: u32 = 100;

/// What may happen to the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mishap {
    /// A node loses power: what is not synced is lost, wholly or in part.
    PowerLoss,
    /// All nodes do, at once.
    Blackout,
    /// A process is killed; the operating system keeps what was written.
    Kill,
    /// A process is stopped in an orderly way.
    Leave,
    /// A node loses power and comes back with empty disks.
    Wipe,
    /// A process stands still.
    Pause,
    /// The wall clock of a node jumps.
    ClockJump,
    /// Two nodes do not hear each other, or only one of them does not.
    Cut,
    /// A node does not hear the controllers, or one of them, or they do not hear it.
    CutOff,
    /// A disk has no room, for a while.
    FullDisk,
    /// A sync fails.
    SyncError,
    /// A write fails.
    WriteError,
    /// Anything else that a disk is asked for fails.
    DiskError,
    /// Bits of what lies on a disk turn over.
    Rot,
    /// Syncs take long.
    SlowDisk,
    /// Another controller takes over, or the same one anew.
    NewController,
    /// The active controller stands still.
    PauseController,
    /// The active controller does not hear a broker, and another one takes over as soon as it has decided to fence that one.
    Overtake,
    /// A broker is taken out of the cluster.
    Unregister,
    /// Somebody asks for another leader, other replicas, another topic, or none.
    Admin,
}

impl Mishap {
    /// Whether it may cost what was written and not synced.
    fn loses_writes(self) -> bool {
        matches!(
            self,
            Mishap::PowerLoss | Mishap::Blackout | Mishap::SyncError | Mishap::WriteError | Mishap::DiskError
        )
    }
}

const MOST: [Mishap; 17] = [
    Mishap::PowerLoss,
    Mishap::Blackout,
    Mishap::Kill,
    Mishap::Leave,
    Mishap::Wipe,
    Mishap::Pause,
    Mishap::ClockJump,
    Mishap::Cut,
    Mishap::CutOff,
    Mishap::FullDisk,
    Mishap::SyncError,
    Mishap::WriteError,
    Mishap::SlowDisk,
    Mishap::NewController,
    Mishap::PauseController,
    Mishap::Unregister,
    Mishap::Admin,
];

/// Those of which fewer seeds have some, so many in a thousand.
const OTHERS: [(Mishap, u32); 2] = [(Mishap::DiskError, 200), (Mishap::Rot, 250)];

/// What a topic is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopicKind {
    /// Producers write to it without transactions.
    Plain,
    /// Producers write to it in transactions alone.
    Transactional,
    /// The log of coordinators.
    Internal,
}

/// The transactions of a seed that has some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransactionPlan {
    /// The level of `transaction.version`.
    pub version: i16,
    /// So many in a thousand clients keep their epoch from one transaction to the next.
    pub first_generation: u32,
    pub clients: usize,
    pub timeout_ms: i32,
}

/// The members of a group of a seed with transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupPlan {
    /// They speak the classic protocol.
    pub is_classic: bool,
    pub members: usize,
    /// So many of them have a group instance id.
    pub static_members: usize,
    /// So many of them, in the consumer protocol, subscribe by a regular expression.
    pub by_regex: usize,
}

#[derive(Clone, Debug)]
pub struct TopicPlan {
    pub name: &'static str,
    pub partitions: i32,
    pub replication_factor: i16,
    pub min_insync_replicas: i32,
    pub segment_bytes: i32,
    /// Any replica may lead when none in sync can, and what it lacks is lost.
    pub is_unclean: bool,
    pub kind: TopicKind,
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub nodes: i32,
    pub controllers: usize,
    pub shards: usize,
    /// Log directories of each node.
    pub directories: usize,
    pub topics: Vec<TopicPlan>,
    pub has_elr: bool,
    pub has_idempotence: bool,
    /// Packets in a thousand that get lost, and that come twice.
    pub lost: u32,
    pub twice: u32,
    pub delay_max_ms: i64,
    pub sync_max_ms: i64,
    pub lag_time_max_ms: i64,
    pub session_ms: i64,
    pub fetch_lanes: usize,
    /// How many sessions of followers a broker remembers.
    pub fetch_sessions: usize,
    /// The nodes that do not wait for disks (`log.flush.before.ack=false`). Then none loses what was only written.
    pub lazy: Vec<i32>,
    /// How long things go wrong, and how often.
    pub faults_ms: i64,
    pub mishap_every_ms: i64,
    pub mishaps: Vec<Mishap>,
    pub transactions: Option<TransactionPlan>,
    pub group: Option<GroupPlan>,
}

impl Plan {
    pub fn of(seed: u64) -> Plan {
        let chance = &mut Chance::new(seed ^ 0x7a11);
        let nodes = *chance.pick(&[3, 3, 3, 4, 5]);
        let topic = |name, may_be_unclean: bool, chance: &mut Chance| {
            let replication_factor = *chance.pick(&[3, 3, 3, 2]);
            TopicPlan {
                name,
                partitions: *chance.pick(&[1, 2, 3]),
                replication_factor,
                min_insync_replicas: *chance.pick(&[1, 2, 2]),
                segment_bytes: *chance.pick(&[800, 2000, 1 << 20]),
                is_unclean: chance.permille(200) && may_be_unclean,
                kind: TopicKind::Plain,
            }
        };
        // A seed has some kinds of mishaps, not all: each is then alone often enough to be felt.
        let share = *chance.pick(&[250, 400, 600]);
        let mut mishaps: Vec<Mishap> = MOST.iter().copied().filter(|_| chance.permille(share)).collect();
        let others = &mut Chance::new(seed ^ 0xd15c);
        mishaps.extend(OTHERS.iter().filter(|(_, share)| others.permille(*share)).map(|(mishap, _)| *mishap));
        // A broker that is taken out of the cluster while it lives goes on for as long as its lease holds.
        let may_be_unclean = !mishaps.contains(&Mishap::Unregister);
        let mut lazy = Vec::new();
        if chance.permille(120) {
            lazy = (1..=nodes).filter(|_| chance.permille(500)).collect();
        }
        if !lazy.is_empty() {
            mishaps.retain(|mishap| !mishap.loses_writes());
        }
        if mishaps.is_empty() {
            mishaps.push(Mishap::Kill);
        }
        let plan = Plan {
            nodes,
            controllers: *chance.pick(&[1, 3, 3]),
            shards: *chance.pick(&[1, 2]),
            directories: *chance.pick(&[1, 1, 2]),
            topics: vec![topic("alpha", may_be_unclean, chance), topic("beta", may_be_unclean, chance)],
            has_elr: chance.permille(700),
            has_idempotence: chance.permille(700),
            lost: *chance.pick(&[0, 5, 20, 60]),
            twice: *chance.pick(&[0, 10, 50]),
            delay_max_ms: *chance.pick(&[2, 5, 20, 60]),
            sync_max_ms: *chance.pick(&[1, 5, 30]),
            lag_time_max_ms: *chance.pick(&[600, 1500, 3000]),
            // Longer than a lease.
            session_ms: *chance.pick(&[2400, 4000]),
            fetch_lanes: *chance.pick(&[1, 2]),
            fetch_sessions: *chance.pick(&[0, 2, 100, 100]),
            lazy,
            faults_ms: chance.between(4_000, 9_000),
            mishap_every_ms: *chance.pick(&[120, 250, 500]),
            mishaps,
            transactions: None,
            group: None,
        };
        let plan = if seed.is_multiple_of(TRANSACTIONS_EVERY) { plan.with_transactions(seed) } else { plan };
        plan.with_overtaking(seed)
    }

    /// The same with transactions, and less of what goes on without them.
    fn with_transactions(mut self, seed: u64) -> Plan {
        let chance = &mut Chance::new(seed ^ 0x7ac5);
        let topic = |name, kind, chance: &mut Chance| TopicPlan {
            name,
            partitions: *chance.pick(&[1, 2, 3]),
            replication_factor: 3,
            min_insync_replicas: *chance.pick(&[1, 2, 2]),
            segment_bytes: *chance.pick(&[2_000, 6_000, 1 << 20]),
            is_unclean: false,
            kind,
        };
        self.topics.truncate(1);
        self.topics[0].partitions = 1;
        self.topics.extend([
            topic("outputs", TopicKind::Transactional, chance),
            topic(TRANSACTION_STATE, TopicKind::Internal, chance),
            topic(CONSUMER_OFFSETS, TopicKind::Internal, chance),
        ]);
        let version = *chance.pick(&[2, 2, 2, 1, 0]);
        self.transactions = Some(TransactionPlan {
            version,
            first_generation: if version < 2 { 1_000 } else { *chance.pick(&[0, 0, 400]) },
            clients: *chance.pick(&[2, 3, 4]),
            timeout_ms: *chance.pick(&[800, 2_000, 5_000]),
        });
        self.group = Some(GroupPlan {
            is_classic: chance.permille(500),
            members: *chance.pick(&[2, 3]),
            static_members: *chance.pick(&[0, 1, 3]),
            by_regex: *chance.pick(&[0, 1, 3]),
        });
        self
    }

    /// The same, perhaps with controllers that are overtaken with something under way. That shows where nothing else changes the
    /// metadata meanwhile, for what was decided on other metadata is decided again anyway.
    fn with_overtaking(self, seed: u64) -> Plan {
        if self.controllers == 1 || !Chance::new(seed ^ 0x07a4).permille(OVERTAKEN) {
            return self;
        }
        let mishaps = vec![Mishap::Overtake, Mishap::ClockJump];
        Plan { mishaps, session_ms: 2_400, faults_ms: 9_000, ..self }
    }

    /// Whether what is on disks may not be what was written.
    pub fn has_rot(&self) -> bool {
        self.mishaps.contains(&Mishap::Rot)
    }

    /// Whether there are clients of the first generation, for which the order of a connection matters: what was sent on one
    /// that is gone must not arrive.
    pub fn keeps_order(&self) -> bool {
        self.transactions.is_some_and(|plan| plan.first_generation > 0)
    }
}
