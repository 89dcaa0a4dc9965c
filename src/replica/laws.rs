//! Property tests: whatever happens in whatever order, the invariants of [`super`] hold.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::types::MonotonicMs;

#[derive(Clone, Debug)]
enum Event {
    Append { records: i64, acks: Option<bool> },
    Flush { of_unflushed: u8 },
    Fetch { follower: i32, back: i64, unflushed: i64, tells_flushed: bool },
    Alter { outcome: u8 },
    Controller { keep: u8, new_epoch: bool },
    Pass { ms: i64 },
    MinIsr(usize),
    Durable(bool),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        4 => (1..5i64, proptest::option::of(any::<bool>())).prop_map(|(records, acks)| Event::Append { records, acks }),
        4 => (0..=4u8).prop_map(|of_unflushed| Event::Flush { of_unflushed }),
        6 => (2..=3i32, 0..4i64, 0..4i64, any::<bool>()).prop_map(|(follower, back, unflushed, tells_flushed)| {
            Event::Fetch { follower, back, unflushed, tells_flushed }
        }),
        2 => (0..4u8).prop_map(|outcome| Event::Alter { outcome }),
        1 => (0..4u8, any::<bool>()).prop_map(|(keep, new_epoch)| Event::Controller { keep, new_epoch }),
        2 => (1..1500i64).prop_map(|ms| Event::Pass { ms }),
        1 => (1..4usize).prop_map(Event::MinIsr),
        1 => any::<bool>().prop_map(Event::Durable),
    ];
    proptest::collection::vec(event, 1..120)
}

/// A leader, and beside it what the world knows independently.
struct World {
    leader: Leader,
    now: MonotonicMs,
    config: ReplicaConfig,
    log_end: Offset,
    flushed: Offset,
    /// The furthest that each follower has reported: log end, flushed.
    reported: BTreeMap<NodeId, (Offset, Offset)>,
    proposed: Option<AlterPartition>,
    partition_epoch: i32,
    leader_epoch: i32,
    high_watermark: Offset,
    next_token: u64,
    owed: BTreeSet<u64>,
}

fn standing(node: i32) -> (NodeId, BrokerStanding) {
    (NodeId(node), BrokerStanding::Active(BrokerEpoch(1)))
}

impl World {
    fn new() -> World {
        let config = ReplicaConfig {
            min_insync_replicas: 2,
            durable_acks: true,
            lag_time_max_ms: 1000,
            unclean_election: false,
        };
        let zero = Offset::ZERO;
        let log = LogPosition { log_start: zero, high_watermark: zero, flushed: zero, log_end: zero };
        let registration = World::registration(0, 0, &[1, 2, 3]);
        let leader = Leader::new(NodeId(1), &registration, log, config, MonotonicMs(0), &mut Vec::new());
        World {
            leader,
            now: MonotonicMs(0),
            config,
            log_end: zero,
            flushed: zero,
            reported: BTreeMap::new(),
            proposed: None,
            partition_epoch: 0,
            leader_epoch: 0,
            high_watermark: zero,
            next_token: 0,
            owed: BTreeSet::new(),
        }
    }

    fn registration(leader_epoch: i32, partition_epoch: i32, isr: &[i32]) -> Registration {
        Registration {
            leader_epoch: LeaderEpoch(leader_epoch),
            partition_epoch: PartitionEpoch(partition_epoch),
            replicas: vec![standing(1), standing(2), standing(3)],
            isr: isr.iter().map(|id| NodeId(*id)).collect(),
        }
    }

    fn step(&mut self, event: &Event) {
        let mut out = Vec::new();
        match *event {
            Event::Append { records, acks } => {
                let acks = acks.map(|all| if all { Acks::All } else { Acks::Leader });
                if acks.is_some_and(|acks| self.leader.check_append(acks).is_err()) {
                    return;
                }
                self.log_end = self.log_end.plus(records);
                self.leader.append_done(self.log_end, self.now, &mut out);
                if let Some(acks) = acks {
                    let token = self.next_token;
                    self.next_token += 1;
                    self.owed.insert(token);
                    let deadline = self.now.plus(1200);
                    self.leader.await_ack(AckToken(token), acks, self.log_end, deadline, &mut out);
                }
            }
            Event::Flush { of_unflushed } => {
                self.flushed =
                    self.flushed.plus(self.log_end.since(self.flushed) * i64::from(of_unflushed) / 4);
                self.leader.flushed(self.flushed, self.now, &mut out);
            }
            Event::Fetch { follower, back, unflushed, tells_flushed } => {
                let at = Offset((self.log_end.0 - back).max(0));
                let flushed = if tells_flushed { Offset((at.0 - unflushed).max(0)) } else { at };
                let reported = self.reported.entry(NodeId(follower)).or_insert((at, flushed));
                *reported = (reported.0.max(at), reported.1.max(flushed));
                let fetch = FollowerFetch {
                    follower: NodeId(follower),
                    broker_epoch: BrokerEpoch(1),
                    fetch_offset: at,
                    flushed_offset: tells_flushed.then_some(flushed),
                    log_start: Offset::ZERO,
                };
                self.leader.follower_fetched(&fetch, self.now, &mut out).expect("a replica");
            }
            Event::Alter { outcome } => self.alter(outcome, &mut out),
            Event::Controller { keep, new_epoch } => {
                let isr: Vec<i32> = self.leader.isr().committed().iter().map(|node| node.0).collect();
                let isr: Vec<i32> =
                    isr.into_iter().filter(|id| *id == 1 || keep & (1 << (id - 2)) != 0).collect();
                self.partition_epoch += 1;
                self.proposed = None;
                if new_epoch {
                    self.leader_epoch += 1;
                    self.reported.clear();
                }
                let registration = World::registration(self.leader_epoch, self.partition_epoch, &isr);
                self.leader.registration(&registration, self.now, &mut out);
            }
            Event::Pass { ms } => {
                self.now = self.now.plus(ms);
                self.leader.tick(self.now, &mut out);
                let due = self.leader.next_deadline();
                assert!(due.is_none_or(|due| due > self.now), "a deadline of the past stays after a tick");
            }
            Event::MinIsr(min_insync_replicas) => {
                self.config.min_insync_replicas = min_insync_replicas;
                self.leader.configure(self.config, self.now, &mut out);
            }
            Event::Durable(durable_acks) => {
                self.config.durable_acks = durable_acks;
                self.leader.configure(self.config, self.now, &mut out);
            }
        }
        self.observe(out);
    }

    fn alter(&mut self, outcome: u8, out: &mut Vec<Effect>) {
        let Some(proposed) = self.proposed.take() else { return };
        let outcome = match outcome {
            0 => {
                self.partition_epoch += 1;
                AlterOutcome::Applied {
                    leader_epoch: LeaderEpoch(self.leader_epoch),
                    partition_epoch: PartitionEpoch(self.partition_epoch),
                    isr: proposed.isr.iter().map(|(node, _)| *node).collect(),
                }
            }
            1 => AlterOutcome::Refused,
            2 => AlterOutcome::Superseded,
            _ => AlterOutcome::Unknown,
        };
        self.leader.alter_done(proposed.partition_epoch, outcome, self.now, out);
    }

    fn observe(&mut self, out: Vec<Effect>) {
        for effect in out {
            match effect {
                Effect::HighWatermark(at) => {
                    assert!(at > self.high_watermark, "the high watermark falls or stands still");
                    self.high_watermark = at;
                    self.assert_held_below(at);
                }
                Effect::Answer { token, .. } => assert!(self.owed.remove(&token.0), "answered twice"),
                Effect::AlterPartition(alter) => {
                    assert!(
                        alter.isr.iter().any(|(node, _)| *node == NodeId(1)),
                        "the leader leaves its own set"
                    );
                    self.proposed = Some(alter);
                }
            }
        }
        assert_eq!(self.leader.high_watermark(), self.high_watermark);
        assert_eq!(self.leader.parked(), self.owed.len());
    }

    fn assert_held_below(&self, at: Offset) {
        let durable = self.config.durable_acks;
        assert!(at <= if durable { self.flushed } else { self.log_end });
        for node in [NodeId(2), NodeId(3)] {
            if self.leader.isr().may_contain(node) {
                let (log_end, flushed) = self.reported[&node];
                assert!(
                    at <= if durable { flushed } else { log_end },
                    "replica {node} lacks committed records"
                );
            }
        }
    }
}

proptest! {
    #[test]
    fn the_high_watermark_is_held_by_all_and_answers_leave_once(events in events()) {
        let mut world = World::new();
        for event in &events {
            world.step(event);
        }
        let mut out = Vec::new();
        world.leader.resign(&mut out);
        for effect in out {
            let Effect::Answer { token, .. } = effect else { panic!("{effect:?} after resigning") };
            assert!(world.owed.remove(&token.0), "answered twice");
        }
        assert!(world.owed.is_empty(), "never answered: {:?}", world.owed);
    }
}
