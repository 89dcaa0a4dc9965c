//! Runs the scripts in `tests/replica/*.txt`: commands to one leader, then `----`, then the effects that they must
//! have. `UPDATE_EXPECT=1 cargo test replica` writes what the code does into the scripts.
//!
//! A command is a word and `key=value` arguments; `now=` on any command sets the clock first. See [`Script::run`] for
//! the words.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::*;
use crate::metadata::tests::replay::check_scripts;
use crate::types::MonotonicMs;

struct Script {
    now: MonotonicMs,
    leader: Option<Leader>,
    standings: BTreeMap<NodeId, BrokerStanding>,
}

pub(super) struct Args<'a> {
    pub(super) line: &'a str,
    pairs: BTreeMap<&'a str, &'a str>,
}

impl<'a> Args<'a> {
    /// The words of a line: its verb, the flags, and the arguments.
    pub(super) fn parse(line: &'a str) -> (&'a str, Vec<&'a str>, Args<'a>) {
        let mut words = line.split_whitespace();
        let verb = words.next().expect("a command");
        let (pairs, flags): (Vec<_>, Vec<_>) = words.partition(|word| word.contains('='));
        let pairs = pairs.into_iter().filter_map(|pair| pair.split_once('=')).collect();
        (verb, flags, Args { line, pairs })
    }

    pub(super) fn opt(&self, key: &str) -> Option<&'a str> {
        self.pairs.get(key).copied()
    }

    pub(super) fn int(&self, key: &str, default: i64) -> i64 {
        let parse = |text: &str| text.parse().unwrap_or_else(|_| panic!("{}: {key} is no number", self.line));
        self.opt(key).map_or(default, parse)
    }

    pub(super) fn offset(&self, key: &str, default: i64) -> Offset {
        Offset(self.int(key, default))
    }

    fn nodes(&self, key: &str) -> Vec<NodeId> {
        let list = self.opt(key).unwrap_or("1");
        list.split(',').map(|id| NodeId(id.parse().expect("a node id"))).collect()
    }
}

impl Script {
    /// One command; returns its effects as text.
    fn run(&mut self, line: &str) -> String {
        let (verb, flags, args) = Args::parse(line);
        self.now = MonotonicMs(args.int("now", self.now.0));
        let mut out = Vec::new();
        let text = self.step(verb, &flags, &args, &mut out);
        out.iter().map(describe).chain(text).fold(String::new(), |mut all, line| {
            let _ = writeln!(all, "{line}");
            all
        })
    }

    fn step(&mut self, verb: &str, flags: &[&str], args: &Args<'_>, out: &mut Vec<Effect>) -> Option<String> {
        let now = self.now;
        if verb == "broker" {
            let node = NodeId(args.int("id", 0) as i32);
            let epoch = BrokerEpoch(args.int("epoch", 1));
            let standing = match flags {
                ["fenced"] => BrokerStanding::Fenced(epoch),
                ["leaving"] => BrokerStanding::Leaving(epoch),
                ["absent"] => BrokerStanding::Absent,
                _ => BrokerStanding::Active(epoch),
            };
            self.standings.insert(node, standing);
            return None;
        }
        if verb == "leader" {
            let end = args.int("end", 0);
            let log = LogPosition {
                log_start: args.offset("start", 0),
                high_watermark: args.offset("hw", 0),
                flushed: args.offset("flushed", end),
                log_end: Offset(end),
            };
            let leader = Leader::new(NodeId(1), &self.registration(args), log, config(args), now, out);
            self.leader = Some(leader);
            return None;
        }
        if verb == "resign" {
            self.leader.take().expect("a leader").resign(out);
            return None;
        }
        let registration = (verb == "registration").then(|| self.registration(args));
        let leader = self.leader.as_mut().expect("a leader");
        let acks = if flags.contains(&"leader") { Acks::Leader } else { Acks::All };
        let token = AckToken(args.int("token", 0) as u64);
        let deadline = MonotonicMs(args.int("deadline", 30_000));
        match verb {
            "check" => {
                return Some(leader.check_append(acks).map_or_else(|e| e.to_string(), |()| "ok".into()));
            }
            "append" => leader.append_done(args.offset("end", 0), now, out),
            "ack" => leader.await_ack(token, acks, args.offset("upto", 0), deadline, out),
            "flushed" => leader.flushed(args.offset("upto", 0), now, out),
            "start" => leader.log_start_moved(args.offset("at", 0), out),
            "delete" => leader.await_low_watermark(token, args.offset("upto", 0), deadline, out),
            "fetch" => {
                let fetch = FollowerFetch {
                    follower: NodeId(args.int("from", 2) as i32),
                    broker_epoch: BrokerEpoch(args.int("epoch", 1)),
                    fetch_offset: args.offset("at", 0),
                    flushed_offset: args.opt("flushed").map(|_| args.offset("flushed", 0)),
                    log_start: args.offset("start", 0),
                };
                return leader.follower_fetched(&fetch, now, out).err().map(|e| e.to_string());
            }
            "registration" => leader.registration(&registration.expect("set above"), now, out),
            "alter" => {
                let outcome = match flags {
                    ["applied"] => AlterOutcome::Applied {
                        leader_epoch: LeaderEpoch(args.int("epoch", 1) as i32),
                        partition_epoch: PartitionEpoch(args.int("partition_epoch", 0) as i32),
                        isr: args.nodes("isr"),
                    },
                    ["refused"] => AlterOutcome::Refused,
                    ["superseded"] => AlterOutcome::Superseded,
                    _ => AlterOutcome::Unknown,
                };
                leader.alter_done(PartitionEpoch(args.int("at", 0) as i32), outcome, now, out);
            }
            "tick" => leader.tick(now, out),
            "lease" => {
                leader.lease(flags.contains(&"holds"), now, out);
                return Some(format!("others may lead: {}", leader.others_may_lead()));
            }
            "config" => leader.configure(config(args), now, out),
            "state" => {
                let deadline = leader.next_deadline().map_or("-".into(), |at| at.to_string());
                return Some(format!(
                    "epoch {} partition epoch {} hw {} low {} parked {} deadline {deadline} isr {:?}",
                    leader.leader_epoch(),
                    leader.partition_epoch(),
                    leader.high_watermark(),
                    leader.low_watermark(),
                    leader.parked(),
                    leader.isr()
                ));
            }
            _ => panic!("{}: no such command", args.line),
        }
        None
    }

    fn registration(&self, args: &Args<'_>) -> Registration {
        let standing = |node| {
            (node, self.standings.get(&node).copied().unwrap_or(BrokerStanding::Active(BrokerEpoch(1))))
        };
        Registration {
            leader_epoch: LeaderEpoch(args.int("epoch", 1) as i32),
            partition_epoch: PartitionEpoch(args.int("partition_epoch", 0) as i32),
            replicas: args.nodes("replicas").into_iter().map(standing).collect(),
            isr: args.nodes("isr"),
        }
    }
}

fn config(args: &Args<'_>) -> ReplicaConfig {
    ReplicaConfig {
        min_insync_replicas: args.int("min_isr", 1) as usize,
        durable_acks: args.opt("durable") != Some("off"),
        lag_time_max_ms: args.int("lag", 1000),
        unclean_election: args.opt("unclean") == Some("on"),
    }
}

fn describe(effect: &Effect) -> String {
    match effect {
        Effect::HighWatermark(at) => format!("high watermark {at}"),
        Effect::Answer { token, result: Ok(()) } => format!("answer {}: ok", token.0),
        Effect::Answer { token, result: Err(error) } => format!("answer {}: {error}", token.0),
        Effect::AlterPartition(alter) => {
            let isr: Vec<String> = alter.isr.iter().map(|(node, epoch)| format!("{node}@{epoch}")).collect();
            let (epoch, at) = (alter.leader_epoch, alter.partition_epoch);
            format!("alter partition: epoch {epoch} at {at} isr {}", isr.join(","))
        }
    }
}

#[test]
fn scripts_hold() {
    check_scripts("tests/replica", || {
        let mut script = Script { now: MonotonicMs(0), leader: None, standings: BTreeMap::new() };
        move |line: &str| script.run(line)
    });
}
