//! Runs the scripts in `tests/replica/follower/*.txt`: commands to one follower, then `----`, then the effects that they
//! must have. Written anew like those of the leader, see [`super::script`].
//!
//! `wants` asks what the follower wants and keeps it, under `name=` when given; the answers that follow are to that
//! question, or to the one of `to=`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::script::Args;
use super::*;
use crate::metadata::tests::replay::check_scripts;
use crate::types::{LeaderEpoch, MonotonicMs, NodeId, Offset};

#[derive(Default)]
struct Script {
    now: MonotonicMs,
    follower: Option<Follower>,
    fetches: BTreeMap<String, FetchFrom>,
    queries: BTreeMap<String, BoundsQuery>,
}

fn epoch(args: &Args<'_>, key: &str) -> Option<LeaderEpoch> {
    args.opt(key).map(|_| LeaderEpoch(args.int(key, 0) as i32))
}

fn term(args: &Args<'_>, flags: &[&str]) -> Term {
    Term {
        leader: NodeId(args.int("leader", 1) as i32),
        leader_epoch: LeaderEpoch(args.int("epoch", 1) as i32),
        lossy_epoch: LeaderEpoch(args.int("lossy_epoch", -1) as i32),
        may_lack_committed: flags.contains(&"lossy"),
    }
}

fn log(args: &Args<'_>) -> FollowerLog {
    let end = args.int("end", 0);
    FollowerLog {
        position: LogPosition {
            log_start: args.offset("start", 0),
            high_watermark: args.offset("hw", 0),
            flushed: args.offset("flushed", end),
            log_end: Offset(end),
        },
        last_epoch: epoch(args, "last"),
    }
}

fn epoch_end(args: &Args<'_>, key: &str, end: &str) -> Option<EpochEnd> {
    Some(EpochEnd { epoch: epoch(args, key)?, end: args.offset(end, -1) })
}

fn failure(flags: &[&str]) -> Option<LocalFailure> {
    flags.iter().find_map(|flag| match *flag {
        "corrupt" => Some(LocalFailure::Corrupt),
        "full" => Some(LocalFailure::DiskFull),
        "no-room" => Some(LocalFailure::NoRoom),
        "unfit" => Some(LocalFailure::Unfit),
        "storage" => Some(LocalFailure::Storage),
        _ => None,
    })
}

fn refusal(flags: &[&str]) -> Refusal {
    match flags {
        ["out_of_range"] => Refusal::OffsetOutOfRange,
        ["fenced"] => Refusal::FencedLeaderEpoch,
        ["unknown_epoch"] => Refusal::UnknownLeaderEpoch,
        ["not_leader"] => Refusal::NotLeader,
        ["unknown_topic"] => Refusal::UnknownTopicOrPartition,
        ["unknown_topic_id"] => Refusal::UnknownTopicId,
        ["inconsistent_topic_id"] => Refusal::InconsistentTopicId,
        ["storage"] => Refusal::StorageError,
        _ => Refusal::Other,
    }
}

impl Script {
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

    fn step(
        &mut self,
        verb: &str,
        flags: &[&str],
        args: &Args<'_>,
        out: &mut Vec<FollowerEffect>,
    ) -> Option<String> {
        let now = self.now;
        if verb == "follow" {
            let config = FollowerConfig { backoff_max_ms: args.int("backoff", 1000) };
            self.follower = Some(Follower::new(term(args, flags), log(args), config, out));
            return None;
        }
        let follower = self.follower.as_mut().expect("a follower");
        let fetch = self.fetches.get(args.opt("to").unwrap_or("")).copied();
        let query = self.queries.get(args.opt("to").unwrap_or("")).copied();
        match verb {
            "wants" => {
                let name = args.opt("name").unwrap_or("").to_owned();
                let wants = follower.wants(now);
                match wants {
                    Wants::Fetch(from) => drop(self.fetches.insert(name, from)),
                    Wants::Bounds(query) => drop(self.queries.insert(name, query)),
                    Wants::Nothing { .. } => {}
                }
                return Some(describe_wants(&wants));
            }
            "term" => follower.term(term(args, flags), out),
            "agrees" => {
                let answer = FetchAnswer::Agrees {
                    has_records: flags.contains(&"records"),
                    high_watermark: args.offset("hw", 0),
                    log_start: args.offset("start", 0),
                };
                follower.answered(&fetch.expect("a question"), answer, now, out);
            }
            "diverges" => {
                let theirs = epoch_end(args, "epoch", "end").expect("the leader's epoch");
                let answer = FetchAnswer::Diverges { theirs, ours: epoch_end(args, "ours", "ours_end") };
                follower.answered(&fetch.expect("a question"), answer, now, out);
            }
            "refused" => {
                let answer = FetchAnswer::Refused(refusal(flags));
                follower.answered(&fetch.expect("a question"), answer, now, out);
            }
            "bounds" => {
                let bounds = Bounds { log_start: args.offset("start", 0), log_end: args.offset("end", 0) };
                let answer = if flags.is_empty() { Ok(bounds) } else { Err(refusal(flags)) };
                follower.bounds(&query.expect("a question"), answer, now, out);
            }
            "appended" => {
                let done = (args.offset("end", 0), epoch(args, "last"));
                follower.appended(failure(flags).map_or(Ok(done), Err), now, out);
            }
            "truncated" => follower.truncated(failure(flags).map_or(Ok(log(args)), Err), now, out),
            "flushed" => follower.flushed(args.offset("upto", 0)),
            "start" => follower.log_start_moved(args.offset("at", 0)),
            "disconnected" => follower.disconnected(now),
            "state" => return Some(format!("{:?}", follower.state())),
            _ => panic!("{}: no such command", args.line),
        }
        None
    }
}

fn describe_wants(wants: &Wants) -> String {
    match wants {
        Wants::Fetch(from) => {
            let last = from.last_fetched_epoch.map_or("-".into(), |epoch| epoch.to_string());
            format!(
                "fetch at {} last epoch {last} start {} flushed {} hw {} in epoch {}",
                from.offset, from.log_start, from.flushed, from.high_watermark, from.current_leader_epoch
            )
        }
        Wants::Bounds(query) => format!("bounds in epoch {}", query.current_leader_epoch),
        Wants::Nothing { until } => {
            format!("nothing until {}", until.map_or("something happens".into(), |at| at.to_string()))
        }
    }
}

fn describe(effect: &FollowerEffect) -> String {
    match effect {
        FollowerEffect::Append { expected, up_to_epoch } => {
            format!("append at {expected} up to epoch {up_to_epoch}")
        }
        FollowerEffect::Truncate { to } => format!("truncate to {to}"),
        FollowerEffect::StartAt { at } => format!("start over at {at}"),
        FollowerEffect::HighWatermark(at) => format!("high watermark {at}"),
        FollowerEffect::LogStart(at) => format!("log start {at}"),
        FollowerEffect::Stopped(why) => format!("stopped: {why:?}"),
    }
}

#[test]
fn follower_scripts_hold() {
    check_scripts("tests/replica/follower", || {
        let mut script = Script::default();
        move |line: &str| script.run(line)
    });
}
