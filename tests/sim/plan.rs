//! What a seed makes of the cluster and of its bad luck: sizes, settings, which faults there are and how often.
//!
//! Must not know how faults are done. Invariant: a plan is a function of its seed.

use super::chance::Chance;

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
    /// A node comes back with empty disks.
    Wipe,
    /// A process stands still.
    Pause,
    /// The wall clock of a node jumps.
    ClockJump,
    /// Two nodes do not hear each other, or only one of them does not.
    Cut,
    /// A node does not hear the controllers, or they do not hear it.
    CutOff,
    /// A disk has no room, for a while.
    FullDisk,
    /// A sync fails.
    SyncError,
    /// A write fails.
    WriteError,
    /// Syncs take long.
    SlowDisk,
    /// Another controller takes over.
    NewController,
    /// A broker is taken out of the cluster.
    Unregister,
    /// Somebody asks for another leader, other replicas, another topic, or none.
    Admin,
}

const ALL: [Mishap; 16] = [
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
    Mishap::Unregister,
    Mishap::Admin,
];

#[derive(Clone, Debug)]
pub struct TopicPlan {
    pub name: &'static str,
    pub partitions: i32,
    pub replication_factor: i16,
    pub min_insync_replicas: i32,
    pub segment_bytes: i32,
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub nodes: i32,
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
    /// How long things go wrong, and how often.
    pub faults_ms: i64,
    pub mishap_every_ms: i64,
    pub mishaps: Vec<Mishap>,
}

impl Plan {
    pub fn of(seed: u64) -> Plan {
        let chance = &mut Chance::new(seed ^ 0x7a11);
        let nodes = *chance.pick(&[3, 3, 3, 4, 5]);
        let topic = |name, chance: &mut Chance| {
            let replication_factor = *chance.pick(&[3, 3, 3, 2]);
            TopicPlan {
                name,
                partitions: *chance.pick(&[1, 2, 3]),
                replication_factor,
                min_insync_replicas: *chance.pick(&[1, 2, 2]),
                segment_bytes: *chance.pick(&[800, 2000, 1 << 20]),
            }
        };
        // A seed has some kinds of mishaps, not all: each is then alone often enough to be felt.
        let share = *chance.pick(&[250, 400, 600]);
        let mut mishaps: Vec<Mishap> = ALL.iter().copied().filter(|_| chance.permille(share)).collect();
        if mishaps.is_empty() {
            mishaps.push(Mishap::PowerLoss);
        }
        Plan {
            nodes,
            shards: *chance.pick(&[1, 2]),
            directories: *chance.pick(&[1, 1, 2]),
            topics: vec![topic("alpha", chance), topic("beta", chance)],
            has_elr: chance.permille(700),
            has_idempotence: chance.permille(700),
            lost: *chance.pick(&[0, 5, 20, 60]),
            twice: *chance.pick(&[0, 10, 50]),
            delay_max_ms: *chance.pick(&[2, 5, 20, 60]),
            sync_max_ms: *chance.pick(&[1, 5, 30]),
            lag_time_max_ms: *chance.pick(&[600, 1500, 3000]),
            session_ms: *chance.pick(&[1200, 3000]),
            fetch_lanes: *chance.pick(&[1, 2]),
            faults_ms: chance.between(4_000, 9_000),
            mishap_every_ms: *chance.pick(&[120, 250, 500]),
            mishaps,
        }
    }
}
