//! Runs the scripts in `tests/metadata/liveness/*.txt`: what a controller hears, then `----`, then its verdicts, each with
//! its time. `UPDATE_EXPECT=1 cargo test liveness` writes what the code does into the scripts.

use super::*;
use crate::metadata::brokers::Brokers;
use crate::metadata::tests::replay::check_scripts;
use crate::wire::messages::metadata::RegisterBrokerRecord;
use std::collections::BTreeMap;
use std::fmt::Write as _;

const HEARTBEAT_MS: i64 = 250;
/// How long an unanswered probe takes.
const PROBE_MS: i64 = 400;
/// After how long a witness speaks.
const WITNESS_MS: i64 = 1_500;

#[derive(Default)]
struct Script {
    now: MonotonicMs,
    brokers: Brokers,
    liveness: Option<Liveness>,
    /// Unanswered probes, and when they are given up.
    probes: Vec<(MonotonicMs, NodeId, BrokerEpoch)>,
    /// Since when each broker is silent in `run`.
    quiet: BTreeMap<NodeId, MonotonicMs>,
    is_log_slow: bool,
}

fn nodes(list: &str) -> Vec<NodeId> {
    list.split(',').filter(|id| !id.is_empty()).map(|id| NodeId(id.parse().expect("a node id"))).collect()
}

impl Script {
    /// `now=` on any command sets the clock first.
    fn run(&mut self, line: &str) -> String {
        let mut words = line.split_whitespace();
        let verb = words.next().expect("a command");
        let (pairs, flags): (Vec<&str>, Vec<&str>) = words.partition(|word| word.contains('='));
        let pairs: BTreeMap<&str, &str> = pairs.into_iter().filter_map(|pair| pair.split_once('=')).collect();
        let int = |key: &str, default: i64| pairs.get(key).map_or(default, |text| text.parse().expect(key));
        let list = |key: &str| nodes(pairs.get(key).unwrap_or(&""));
        self.now = MonotonicMs(int("now", self.now.0));
        let now = self.now;
        let node = || nodes(flags.first().expect("a broker"))[0];
        match verb {
            "broker" => return self.broker(node(), BrokerEpoch(int("epoch", 1)), &flags),
            "gone" => {
                let record = crate::wire::messages::metadata::UnregisterBrokerRecord {
                    broker_id: node().0,
                    ..Default::default()
                };
                self.brokers.unregister(&record);
                self.follow();
            }
            "elected" => {
                let config = LivenessConfig::new(int("session", 9_000));
                let me = list("me").first().copied();
                self.liveness = Some(Liveness::new(config, me, &self.brokers, now));
                self.probes.clear();
                self.quiet.clear();
            }
            // Verdicts come true only later, by `broker ID fenced`.
            "slow-log" => self.is_log_slow = true,
            "quiet" => drop(self.quiet.insert(node(), MonotonicMs(int("since", now.0)))),
            "run" => {
                let beats = list("beats");
                let world = World {
                    late: int("late", 0),
                    beats: &beats,
                    answers: &list("answers"),
                    refuses: &list("refuses"),
                    witnesses: &list("witnesses"),
                    missed: &list("missed"),
                };
                return self.run_until(MonotonicMs(int("to", 0)), &world);
            }
            _ => {
                let node = node();
                let current = self.brokers.get(node).map_or(BrokerEpoch::UNKNOWN, |broker| broker.epoch);
                let epoch = BrokerEpoch(int("epoch", current.0));
                let liveness = self.liveness.as_mut().expect("elected");
                match verb {
                    "heard" => liveness.heard(node, epoch, Offset(int("offset", 0)), now),
                    "connects" => liveness.connected(node, epoch),
                    "breaks" => liveness.disconnected(node, epoch, now),
                    "alive" => return format!("{}\n", liveness.is_alive(node, epoch, now)),
                    "may-unfence" => return format!("{}\n", liveness.may_unfence(node, epoch, now)),
                    "may-leave" => {
                        let may = liveness.others_caught_up(node, epoch, Offset(int("applied", 0)));
                        return format!("{may}\n");
                    }
                    _ => panic!("{line}: no such command"),
                }
            }
        }
        String::new()
    }

    fn broker(&mut self, id: NodeId, epoch: BrokerEpoch, flags: &[&str]) -> String {
        let record = RegisterBrokerRecord {
            broker_id: id.0,
            broker_epoch: epoch.0,
            fenced: flags.contains(&"fenced"),
            in_controlled_shutdown: flags.contains(&"leaving"),
            ..RegisterBrokerRecord::default()
        };
        self.brokers.register(&record);
        self.follow();
        String::new()
    }

    fn follow(&mut self) {
        if let Some(liveness) = &mut self.liveness {
            liveness.follow(&self.brokers, self.now);
        }
    }

    /// Lets time pass: brokers that beat do so, probes come to what the world says, and who is condemned is fenced.
    fn run_until(&mut self, end: MonotonicMs, world: &World<'_>) -> String {
        let mut out = String::new();
        while self.now < end {
            self.now = self.now.plus(10);
            let now = self.now;
            if now.0 % HEARTBEAT_MS == 0 {
                self.beat(world);
            }
            let liveness = self.liveness.as_mut().expect("elected");
            self.probes.retain(|&(at, id, epoch)| {
                let is_over = at <= now;
                if is_over {
                    liveness.probed(id, epoch, ProbeOutcome::Unanswered, now);
                }
                !is_over
            });
            if now.0 % 50 != 0 {
                continue;
            }
            for verdict in liveness.tick(now) {
                match verdict {
                    Verdict::Probe(id, epoch) => {
                        let found = match id {
                            id if world.answers.contains(&id) => ProbeOutcome::Answered,
                            id if world.refuses.contains(&id) => ProbeOutcome::Refused,
                            _ => {
                                self.probes.push((now.plus(PROBE_MS), id, epoch));
                                let _ = writeln!(out, "{now}: probe {id}, no answer");
                                continue;
                            }
                        };
                        let _ = writeln!(out, "{now}: probe {id}, {found:?}");
                        liveness.probed(id, epoch, found, now);
                    }
                    Verdict::Fence(id, epoch, cause) => {
                        let _ = writeln!(out, "{now}: fence {id} of epoch {epoch}: {cause}");
                        if !self.is_log_slow {
                            self.brokers.set_fenced(id.0, epoch.0, true);
                            liveness.follow(&self.brokers, now);
                        }
                    }
                }
            }
        }
        out
    }

    fn beat(&mut self, world: &World<'_>) {
        let now = self.now;
        let ids: Vec<(NodeId, BrokerEpoch)> = self.brokers.iter().map(|b| (b.id, b.epoch)).collect();
        let liveness = self.liveness.as_mut().expect("elected");
        let mut silent = Vec::new();
        for (id, epoch) in ids {
            if world.beats.contains(&id) {
                liveness.heard(id, epoch, Offset(0), MonotonicMs(now.0 - world.late));
                if !world.missed.contains(&id) {
                    self.quiet.remove(&id);
                    continue;
                }
            }
            let since = *self.quiet.entry(id).or_insert(MonotonicMs(now.0 - HEARTBEAT_MS));
            if now.since(since) >= WITNESS_MS {
                silent.push((id, now.since(since)));
            }
        }
        // Each heartbeat says anew whom that broker waits for.
        for id in world.beats {
            liveness.suspected(*id, &[], now);
        }
        for witness in world.witnesses {
            liveness.suspected(*witness, &silent, now);
        }
    }
}

/// How things are while time passes.
struct World<'a> {
    /// By how much heartbeats are late.
    late: i64,
    beats: &'a [NodeId],
    answers: &'a [NodeId],
    refuses: &'a [NodeId],
    /// Who waits in vain for those that are silent, or that are heard and missed all the same.
    witnesses: &'a [NodeId],
    missed: &'a [NodeId],
}

#[test]
fn scripts_hold() {
    check_scripts("tests/metadata/liveness", || {
        let mut script = Script::default();
        move |line: &str| script.run(line)
    });
}
