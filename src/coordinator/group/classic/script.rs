//! Runs the scripts in `tests/group/classic/*.txt`: commands to one group, then `----`, then what they must lead to.
//! `UPDATE_EXPECT=1 cargo test classic` writes what the code does into the scripts.
//!
//! A command is a word and `key=value` arguments; `now=` on any command sets the clock first. Tokens count up by themselves,
//! member ids end in a number that counts up, so a client `c` becomes the members `c-1`, `c-2` ...

use std::fmt::Write as _;

use bytes::Bytes;

use super::super::command::Identity;
use super::super::{Asked, Name, Now, Out, Reply, ReplyToken};
use super::*;
use crate::coordinator::group::record::Record;
use crate::metadata::tests::replay::check_scripts;
use crate::types::{MonotonicMs, TimestampMs};
use crate::wire::messages::groups::GroupMetadataValue;

struct Script {
    now: Now,
    group: ClassicGroup,
    config: ClassicConfig,
    /// The last record of the group.
    stored: Option<GroupMetadataValue>,
    tokens: u64,
    fresh: u128,
}

fn arg<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let mut pairs = line.split_whitespace().filter_map(|word| word.split_once('='));
    pairs.find(|(name, _)| *name == key).map(|(_, value)| value)
}

fn int(line: &str, key: &str, default: i64) -> i64 {
    arg(line, key).map_or(default, |text| text.parse().expect("a number"))
}

fn name(line: &str, key: &str) -> Option<Name> {
    arg(line, key).map(Name::from)
}

impl Script {
    fn new() -> Script {
        let group = ClassicGroup::new("g".into(), TimestampMs(0));
        let now = Now::default();
        Script { now, group, config: ClassicConfig::default(), stored: None, tokens: 0, fresh: 0 }
    }

    fn token(&mut self) -> ReplyToken {
        self.tokens += 1;
        ReplyToken(self.tokens)
    }

    fn run(&mut self, line: &str) -> String {
        let at = int(line, "now", self.now.monotonic.0);
        self.now = Now { monotonic: MonotonicMs(at), wall: TimestampMs(1_000_000 + at) };
        let mut out = Out::default();
        let said = self.step(line, &mut out);
        for write in &out.records {
            let Record::GroupMetadata(_, value) = &write.record else { continue };
            self.stored.clone_from(value);
        }
        let mut text = String::new();
        for line in said.into_iter().chain(out.records.iter().map(|write| describe_record(&write.record))) {
            let _ = writeln!(text, "{line}");
        }
        for (token, reply) in &out.replies {
            let _ = writeln!(text, "{} {}", token.0, describe_reply(reply));
        }
        text
    }

    fn step(&mut self, line: &str, out: &mut Out) -> Option<String> {
        let (now, config) = (self.now, self.config);
        match line.split_whitespace().next().expect("a command") {
            "config" => {
                self.config.max_size = int(line, "max", i64::MAX) as usize;
                self.config.initial_rebalance_delay_ms = int(line, "delay", 3_000);
            }
            "join" => {
                let join = Asked { token: self.token(), request: self.join(line) };
                let is_new = self.stored.is_none();
                self.group.join(&join, is_new, &config, now, out);
            }
            "sync" => {
                let token = self.token();
                let each = arg(line, "assign").into_iter().flat_map(|list| list.split(','));
                let assignments = each.map(|id| (id.into(), format!("to {id}").into())).collect();
                let sync = Sync {
                    member_id: name(line, "member").expect("a member"),
                    instance_id: name(line, "instance"),
                    generation: int(line, "generation", self.group.generation().into()) as i32,
                    protocol_type: name(line, "type"),
                    protocol: name(line, "protocol"),
                    assignments,
                };
                self.group.sync(Asked { token, request: sync }, now, out);
            }
            "heartbeat" => {
                let member = self.identity(line);
                let result = self.group.heartbeat(&member, now);
                return Some(result.map_or_else(|error| error.to_string(), |()| "ok".to_owned()));
            }
            "leave" => {
                let leaving = Leaving {
                    member_id: name(line, "member").unwrap_or_default(),
                    instance_id: name(line, "instance"),
                };
                let result = self.group.leave(&[leaving], &config, now, out).remove(0);
                return Some(result.map_or_else(|error| error.to_string(), |()| "ok".to_owned()));
            }
            "tick" => self.group.tick(&config, now, out),
            "move" => {
                // A new coordinator reads the last record.
                let value = &self.group.stored();
                self.group = ClassicGroup::from_stored("g".into(), value).expect("a sound record");
                self.group.begin(&config, now, out);
            }
            "state" => {
                let group = &self.group;
                let deadline = group.next_deadline().map_or("-".to_owned(), |at| at.to_string());
                let members: Vec<&str> = group.members.keys().map(|id| &**id).collect();
                return Some(format!(
                    "{} generation {} leader {} protocol {} members {} deadline {deadline}",
                    group.state().name(),
                    group.generation(),
                    group.leader().map_or("-", |id| id),
                    group.protocol().map_or("-", |name| name),
                    members.join(","),
                ));
            }
            _ => panic!("{line}: no such command"),
        }
        None
    }

    fn identity(&self, line: &str) -> Identity {
        Identity {
            member_id: name(line, "member").unwrap_or_default(),
            instance_id: name(line, "instance"),
            generation: Some(int(line, "generation", self.group.generation().into()) as i32)
                .filter(|generation| *generation >= 0),
        }
    }

    fn join(&mut self, line: &str) -> Join {
        let protocols = arg(line, "protocols").unwrap_or("range").split(',');
        let version = int(line, "metadata", 1);
        self.fresh += 1;
        Join {
            member_id: name(line, "member").unwrap_or_default(),
            instance_id: name(line, "instance"),
            client_id: name(line, "client").unwrap_or_else(|| "c".into()),
            client_host: "/127.0.0.1".into(),
            session_timeout_ms: int(line, "session", 10_000) as i32,
            rebalance_timeout_ms: int(line, "rebalance", 60_000) as i32,
            protocol_type: name(line, "type").unwrap_or_else(|| CONSUMER_PROTOCOL_TYPE.into()),
            protocols: protocols
                .map(|name| (name.into(), Bytes::from(format!("{name} {version}"))))
                .collect(),
            requires_known_id: !line.contains(" old"),
            can_skip_assignment: !line.contains(" old"),
            fresh: Uuid::from_u128(self.fresh),
        }
    }
}

/// Without the zeros of ids that count up.
fn short(text: &str) -> String {
    text.replace("00000000-0000-0000-0000-0000000000", "")
}

fn describe_record(record: &Record) -> String {
    let Record::GroupMetadata(_, Some(value)) = record else { return format!("{record:?}") };
    let members: Vec<String> = value
        .members
        .iter()
        .map(|member| {
            format!("{}={}", member.member_id.as_str(), String::from_utf8_lossy(&member.assignment))
        })
        .collect();
    short(&format!("record: generation {} members [{}]", value.generation, members.join(", ")))
}

fn describe_reply(reply: &Reply) -> String {
    let text = match reply {
        Reply::Join(Ok(joined)) => format!(
            "joined: {} generation {} protocol {} leader {}{} members {:?}",
            joined.member_id,
            joined.generation,
            joined.protocol.as_deref().unwrap_or("-"),
            joined.leader.as_deref().unwrap_or("-"),
            if joined.skip_assignment { " (skip assignment)" } else { "" },
            joined.members.iter().map(|member| &*member.member_id).collect::<Vec<_>>(),
        ),
        Reply::Join(Err(refused)) => format!("'{}': {}", refused.member_id, refused.error),
        Reply::Sync(Ok(synced)) => format!("assigned: {:?}", String::from_utf8_lossy(&synced.assignment)),
        Reply::Sync(Err(error)) => format!("no assignment: {error}"),
        other => panic!("{other:?} does not come later than its command"),
    };
    short(&text)
}

/// Ids in commands are short as well.
fn long(line: &str) -> String {
    let mut words = Vec::new();
    for word in line.split(' ') {
        let Some((key @ ("member" | "assign"), ids)) = word.split_once('=') else {
            words.push(word.to_owned());
            continue;
        };
        let expand = |id: &str| match id.rsplit_once('-') {
            Some((client, number)) => format!("{client}-00000000-0000-0000-0000-0000000000{number}"),
            None => id.to_owned(),
        };
        words.push(format!("{key}={}", ids.split(',').map(expand).collect::<Vec<_>>().join(",")));
    }
    words.join(" ")
}

#[test]
fn scripts_hold() {
    check_scripts("tests/group/classic", || {
        let mut script = Script::new();
        move |line: &str| short(&script.run(&long(line)))
    });
}
