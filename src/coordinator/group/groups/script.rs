//! Runs the scripts in `tests/group/*/*.txt`: commands to the groups of one partition, then `----`, then what they must
//! lead to. `UPDATE_EXPECT=1 cargo test groups::script` writes what the code does into the scripts.
//!
//! A command is a word and `key=value` arguments; `now=` on any command sets the clock first, `group=` names the group, if
//! it is not `g`; `record-max=` says how large a record may be from then on. Tokens count up by themselves, and are shown only where a reply comes later than its command. Member ids
//! end in a number that counts up, so a client `c` becomes the members `c-01`, `c-02` ... Offsets are `topic-partition`,
//! with `:offset` in commits.

use std::fmt::Write as _;

use bytes::{Buf, Bytes};

use super::super::classic::*;
use super::super::command::*;
use super::super::consumer::{
    self, Described, DescribedTopic, Heartbeat, HeartbeatReply, JOIN_EPOCH, MigrationPolicy, TopicPartitions,
};
use super::super::producers::Ended;
use super::super::reply::*;
use super::super::{Command, Name, Out, Producer, Reply, ReplyToken, Settings};
use super::harness::{Harness, assignment, subscription};
use super::*;
use crate::metadata::tests::replay::check_scripts;
use crate::types::{LeaderEpoch, PartitionIndex, ProducerEpoch, ProducerId, TopicId, Uuid};

struct Script {
    harness: Harness,
    settings: Settings,
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

fn list<'a>(line: &'a str, key: &str) -> impl Iterator<Item = &'a str> {
    arg(line, key).unwrap_or_default().split(',').filter(|part| !part.is_empty())
}

fn group(line: &str) -> Name {
    name(line, "group").unwrap_or_else(|| "g".into())
}

fn names(line: &str, key: &str) -> Vec<Name> {
    list(line, key).map(Name::from).collect()
}

/// A topic's id is its name in hexadecimal, if the command wants ids.
fn topic_id(line: &str, topic: &str) -> TopicId {
    let wants_ids = line.split_whitespace().any(|word| word == "ids");
    let number = topic.bytes().fold(int(line, "id", 0) as u128, |id, byte| id << 8 | u128::from(byte));
    if wants_ids { Uuid::from_u128(number) } else { Uuid::nil() }
}

fn place(text: &str) -> (Name, PartitionIndex) {
    let (topic, index) = text.rsplit_once('-').expect("topic-partition");
    (topic.into(), PartitionIndex(index.parse().expect("a partition")))
}

/// What the ids begin with that are made for members of consumer groups.
const ZEROS: &str = "AAAAAAAAAAAAAAAAAAAA";

/// With zeros, if it counts up.
fn long_id(id: &str) -> String {
    if let Some(number) = id.strip_prefix('~') {
        return format!("{ZEROS}{number}");
    }
    match id.rsplit_once('-') {
        Some((client, number)) => format!("{client}-00000000-0000-0000-0000-0000000000{number}"),
        None => id.to_owned(),
    }
}

impl Script {
    fn new() -> Script {
        let settings = Settings::default();
        Script { harness: Harness::new(settings.clone()), settings, tokens: 0, fresh: 0 }
    }

    fn run(&mut self, line: &str) -> String {
        let at = int(line, "now", self.harness.now.monotonic.0);
        if let Some(max) = arg(line, "record-max") {
            self.harness.record_max = max.parse().expect("a number");
        }
        self.harness.set_time(at);
        let (said, out) = match line.split_whitespace().next().expect("a command") {
            "tick" => (None, self.harness.tick()),
            "move" => (None, self.harness.move_on()),
            "state" => (Some(self.state(&group(line))), Out::default()),
            "due" => (Some(format!("{:?}", self.harness.groups.next_deadline())), Out::default()),
            "end" => {
                let result = if line.contains(" abort") { TxnResult::Abort } else { TxnResult::Commit };
                self.harness.end_transaction(producer(line).expect("a producer"), result);
                (None, Out::default())
            }
            "topic" | "drop-topic" => {
                self.change_topic(line);
                (None, self.harness.metadata_changed())
            }
            word => {
                self.tokens += 1;
                let command = self.command(word, line);
                (None, self.harness.step(ReplyToken(self.tokens), command))
            }
        };
        let mut text = String::new();
        for line in said.into_iter().chain(out.records.iter().map(describe_record)) {
            let _ = writeln!(text, "{line}");
        }
        for (token, reply) in &out.replies {
            let text_of = describe_reply(reply);
            let later = if matches!(reply, Reply::Join(_) | Reply::Sync(_)) { Some(token.0) } else { None };
            let _ = match later {
                Some(token) => writeln!(text, "{token} {text_of}"),
                None => writeln!(text, "{text_of}"),
            };
        }
        text
    }

    fn command(&mut self, word: &str, line: &str) -> Command {
        match word {
            "config" => self.configure(line),
            "join" => Command::Join { group: group(line), join: Box::new(self.join(line)) },
            "sync" => Command::Sync { group: group(line), sync: self.sync(line) },
            "heartbeat" => Command::Heartbeat { group: group(line), member: self.identity(line) },
            "leave" => Command::Leave { group: group(line), leaving: leaving(line) },
            "beat" => Command::ConsumerHeartbeat { group: group(line), heartbeat: Box::new(self.beat(line)) },
            "commit" => {
                let commit = self.commit(line);
                match producer(line) {
                    Some(producer) => {
                        let since = arg(line, "since").map(|count| Ended(count.parse().expect("a count")));
                        Command::CommitOffsetsInTransaction { producer, since, commit }
                    }
                    None => Command::CommitOffsets(commit),
                }
            }
            "count-ends" => Command::CountEnds(producer(line).expect("a producer").id),
            "fetch" => Command::FetchOffsets(fetch(line)),
            "delete-offsets" => {
                let topics = list(line, "offsets").map(place).map(|(topic, index)| (topic, vec![index]));
                Command::DeleteOffsets { group: group(line), topics: topics.collect() }
            }
            "list" => Command::ListGroups(Filter {
                states: list(line, "states").map(str::to_owned).collect(),
                types: list(line, "types").map(str::to_owned).collect(),
            }),
            "describe" => Command::DescribeGroups(names(line, "groups")),
            "describe-consumer" => Command::DescribeConsumerGroups(names(line, "groups")),
            "delete" => Command::DeleteGroups(names(line, "groups")),
            _ => panic!("{line}: no such command"),
        }
    }

    fn configure(&mut self, line: &str) -> Command {
        let Settings { classic, consumer, offsets } = &mut self.settings;
        consumer.defaults.max_size = int(line, "consumer-max", consumer.defaults.max_size as i64) as usize;
        consumer.defaults.migration = match arg(line, "migration") {
            Some(policy) => MigrationPolicy::named(policy).expect("a policy"),
            None => consumer.defaults.migration,
        };
        classic.max_size = int(line, "max", classic.max_size as i64) as usize;
        classic.initial_rebalance_delay_ms = int(line, "delay", classic.initial_rebalance_delay_ms);
        offsets.metadata_max_bytes = int(line, "metadata-max", offsets.metadata_max_bytes as i64) as usize;
        offsets.retention_ms = int(line, "retention", offsets.retention_ms);
        offsets.retention_check_interval_ms = int(line, "check", offsets.retention_check_interval_ms);
        Command::Configure(self.settings.clone())
    }

    fn change_topic(&mut self, line: &str) {
        let topic = arg(line, "name").expect("a name");
        let id = topic_id(&format!("{line} ids"), topic);
        if line.starts_with("drop") {
            self.harness.remove_topic(id);
        } else {
            self.harness.add_topic(topic, id, int(line, "partitions", 1) as i32);
        }
    }

    fn generation_of(&self, group: &Name) -> i32 {
        match self.harness.groups.groups.get(group).map(|entry| &entry.group) {
            Some(Group::Classic(group)) => group.generation(),
            Some(Group::Consumer(group)) => group.epoch(),
            None => 0,
        }
    }

    fn state(&self, group: &Name) -> String {
        let Some(entry) = self.harness.groups.groups.get(group) else { return "no group".to_owned() };
        let group = match &entry.group {
            Group::Classic(group) => group,
            Group::Consumer(group) => {
                let config = self.settings.consumer.defaults;
                return describe_consumer_group(&group.describe(&config, &self.harness.image));
            }
        };
        let deadline = group.next_deadline().map_or("-".to_owned(), |at| at.to_string());
        let members = group.describe().members;
        let members: Vec<&str> = members.iter().map(|member| &*member.member_id).collect();
        format!(
            "{} generation {} leader {} protocol {} members {} deadline {deadline}",
            group.state().name(),
            group.generation(),
            group.leader().map_or("-", |id| id),
            group.protocol().map_or("-", |name| name),
            members.join(","),
        )
    }

    fn identity(&self, line: &str) -> Identity {
        let generation = int(line, "generation", self.generation_of(&group(line)).into()) as i32;
        Identity {
            member_id: name(line, "member").unwrap_or_default(),
            instance_id: name(line, "instance"),
            generation: Some(generation).filter(|generation| *generation >= 0),
        }
    }

    fn join(&mut self, line: &str) -> Join {
        if arg(line, "member").is_none() {
            self.fresh += 1;
        }
        let version = int(line, "metadata", 1);
        let metadata = |name: &str| match arg(line, "topics") {
            Some(_) => subscription(list(line, "topics")),
            None => format!("{name} {version}").into(),
        };
        let protocols = arg(line, "protocols").unwrap_or("range").split(',').filter(|name| !name.is_empty());
        let is_old = line.split_whitespace().any(|word| word == "old");
        Join {
            member_id: name(line, "member").unwrap_or_default(),
            instance_id: name(line, "instance"),
            client_id: name(line, "client").unwrap_or_else(|| "c".into()),
            client_host: "/127.0.0.1".into(),
            session_timeout_ms: int(line, "session", 10_000) as i32,
            rebalance_timeout_ms: int(line, "rebalance", 60_000) as i32,
            protocol_type: name(line, "type").unwrap_or_else(|| CONSUMER_PROTOCOL_TYPE.into()),
            protocols: protocols.map(|name| (name.into(), metadata(name))).collect(),
            requires_known_id: !is_old,
            can_skip_assignment: !is_old,
            fresh: Uuid::from_u128(self.fresh),
        }
    }

    fn sync(&self, line: &str) -> Sync {
        Sync {
            member_id: name(line, "member").expect("a member"),
            instance_id: name(line, "instance"),
            generation: int(line, "generation", self.generation_of(&group(line)).into()) as i32,
            protocol_type: name(line, "type"),
            protocol: name(line, "protocol"),
            assignments: list(line, "assign")
                .map(|id| (id.into(), format!("to {id}").into()))
                .chain(list(line, "give").map(given))
                .collect(),
        }
    }

    fn beat(&mut self, line: &str) -> Heartbeat {
        if arg(line, "member").is_none() {
            self.fresh += 1;
        }
        let owned = |text: &str| {
            let (topic, index) = place(text);
            (topic_id("ids", &topic), vec![index])
        };
        let epoch = int(line, "epoch", 0) as i32;
        let is_joining = epoch == JOIN_EPOCH;
        Heartbeat {
            member_id: name(line, "member").unwrap_or_default(),
            member_epoch: epoch,
            instance_id: name(line, "instance"),
            rack: None,
            rebalance_timeout_ms: is_joining.then_some(60_000),
            topics: arg(line, "topics").map(|_| names(line, "topics")),
            regex: name(line, "regex"),
            assignor: name(line, "assignor"),
            owned: (is_joining || arg(line, "owned").is_some())
                .then(|| list(line, "owned").map(owned).collect()),
            client_id: name(line, "client").unwrap_or_else(|| "c".into()),
            client_host: "/127.0.0.1".into(),
            fresh: Uuid::from_u128(self.fresh),
        }
    }

    /// By an operator, unless the command names a member.
    fn commit(&self, line: &str) -> CommitOffsets {
        let is_member = ["member", "instance", "generation"].iter().any(|key| arg(line, key).is_some());
        let commit = |text: &str| {
            let (place_text, offset) = text.rsplit_once(':').expect("an offset");
            let (topic, index) = place(place_text);
            let partition = CommitPartition {
                index,
                offset: Offset(offset.parse().expect("an offset")),
                leader_epoch: LeaderEpoch(int(line, "leader-epoch", -1) as i32),
                metadata: arg(line, "metadata").unwrap_or_default().into(),
            };
            CommitTopic { id: topic_id(line, &topic), name: topic, partitions: vec![partition] }
        };
        CommitOffsets {
            group: group(line),
            member: if is_member { self.identity(line) } else { Identity::nobody() },
            knows_epochs: true,
            retention_ms: arg(line, "retain").map(|ms| ms.parse().expect("a time")),
            topics: list(line, "offsets").map(commit).collect(),
        }
    }
}

/// `member:topic-0+topic-1`
fn given(text: &str) -> (Name, Bytes) {
    let (id, places) = text.split_once(':').expect("a member and what it is given");
    let places: Vec<_> = places.split('+').filter(|place| !place.is_empty()).map(place).collect();
    (long_id(id).into(), assignment(&places))
}

fn producer(line: &str) -> Option<Producer> {
    let id = arg(line, "producer")?.parse().expect("a producer id");
    Some(Producer { id: ProducerId(id), epoch: ProducerEpoch(int(line, "epoch", 0) as i16) })
}

/// Members by id, or by `instance=` alone.
fn leaving(line: &str) -> Vec<Leaving> {
    let instance_id = name(line, "instance");
    let mut leaving: Vec<Leaving> = list(line, "member")
        .map(|id| Leaving { member_id: id.into(), instance_id: instance_id.clone() })
        .collect();
    if leaving.is_empty() {
        leaving.push(Leaving { member_id: "".into(), instance_id });
    }
    leaving
}

fn fetch(line: &str) -> FetchOffsets {
    let topic = |text: &str| {
        let (name, index) = place(text);
        FetchTopic { id: topic_id(line, &name), name, partitions: vec![index] }
    };
    FetchOffsets {
        group: group(line),
        member: name(line, "member").map(|id| (id, int(line, "epoch", -1) as i32)),
        topics: arg(line, "offsets").map(|_| list(line, "offsets").map(topic).collect()),
        require_stable: line.split_whitespace().any(|word| word == "stable"),
    }
}

/// An assignment as consumers read it, or plain text.
fn readable(bytes: &Bytes) -> String {
    places_in(bytes.clone()).unwrap_or_else(|| format!("{:?}", String::from_utf8_lossy(bytes)))
}

fn places_in(mut bytes: Bytes) -> Option<String> {
    let version = bytes.try_get_i16().ok()?;
    let topics = bytes.try_get_i32().ok()?;
    let mut places = Vec::new();
    for _ in 0..topics {
        let len = usize::try_from(bytes.try_get_i16().ok()?).ok()?;
        let topic = String::from_utf8((bytes.len() >= len).then(|| bytes.split_to(len))?.to_vec()).ok()?;
        let count = bytes.try_get_i32().ok()?;
        let partitions: Option<Vec<i32>> = (0..count).map(|_| bytes.try_get_i32().ok()).collect();
        places.push(format!("{topic}{:?}", partitions?));
    }
    Some(format!("v{version} {}", places.join(" ")))
}

/// Without the zeros of ids that count up.
fn short(text: &str) -> String {
    text.replace("00000000-0000-0000-0000-0000000000", "").replace(ZEROS, "~")
}

fn describe_record(write: &crate::coordinator::Write<Record>) -> String {
    let by = write.producer.map(|producer| format!(" by {}/{}", producer.id, producer.epoch));
    let text = match &write.record {
        Record::GroupMetadata(key, Some(value)) => {
            let member = |member: &crate::wire::messages::groups::GroupMetadataMember| {
                format!("{}={}", &*member.member_id, readable(&member.assignment))
            };
            let members: Vec<String> = value.members.iter().map(member).collect();
            format!("{} generation {} members [{}]", &*key.group, value.generation, members.join(", "))
        }
        Record::GroupMetadata(key, None) => format!("{} ends", &*key.group),
        Record::OffsetCommit(key, Some(value)) => {
            let mut text = format!("{} {}-{} at {}", &*key.group, &*key.topic, key.partition, value.offset);
            if value.leader_epoch != -1 {
                let _ = write!(text, " epoch {}", value.leader_epoch);
            }
            if !value.metadata.is_empty() {
                let _ = write!(text, " '{}'", &*value.metadata);
            }
            if value.expire_timestamp != -1 {
                let _ = write!(text, " until {}", value.expire_timestamp);
            }
            if !value.topic_id.is_nil() {
                let _ = write!(text, " with id");
            }
            text
        }
        Record::OffsetCommit(key, None) => format!("{} {}-{} gone", &*key.group, &*key.topic, key.partition),
        other => other.of_consumer_group().map_or_else(
            || format!("{other:?}"),
            |(id, is_tombstone)| format!("{} {}", &*id, describe_consumer_record(other, is_tombstone)),
        ),
    };
    short(&format!("record: {text}{}", by.unwrap_or_default()))
}

/// The kind of record; what is in it is for the scripts of consumer groups to show.
fn describe_consumer_record(record: &Record, is_tombstone: bool) -> String {
    let kind = match record {
        Record::ConsumerGroupMetadata(..) => "epoch",
        Record::ConsumerGroupPartitionMetadata(..) => "topics of 4.0",
        Record::ConsumerGroupMemberMetadata(..) => "member",
        Record::ConsumerGroupTargetAssignmentMetadata(..) => "target epoch",
        Record::ConsumerGroupTargetAssignmentMember(..) => "target",
        Record::ConsumerGroupCurrentMemberAssignment(..) => "current",
        _ => "regular expression",
    };
    format!("{kind}{}", if is_tombstone { " gone" } else { "" })
}

fn result<T, E: std::fmt::Display>(result: &Result<T, E>, show: impl Fn(&T) -> String) -> String {
    result.as_ref().map_or_else(ToString::to_string, show)
}

fn describe_reply(reply: &Reply) -> String {
    let ok = |(): &()| "ok".to_owned();
    let text = match reply {
        Reply::Configured => return "configured".to_owned(),
        Reply::CountEnds(Ended(count)) => format!("{count} have ended"),
        Reply::Join(Ok(joined)) => describe_joined(joined),
        Reply::Join(Err(refused)) => format!("'{}': {}", refused.member_id, refused.error),
        Reply::Sync(Ok(synced)) => format!("assigned: {}", readable(&synced.assignment)),
        Reply::ConsumerHeartbeat(beat) => result(beat, describe_beat),
        Reply::Sync(Err(error)) => format!("no assignment: {error}"),
        Reply::Heartbeat(alive) => result(alive, ok),
        Reply::Leave(left) => join_lines(left.iter().map(|left| result(left, ok))),
        Reply::CommitOffsets(committed) | Reply::CommitOffsetsInTransaction(committed) => {
            result(committed, |topics| {
                join_lines(topics.iter().flat_map(|topic| {
                    topic
                        .partitions
                        .iter()
                        .map(|(index, stored)| format!("{}-{index} {}", topic.name, result(stored, ok)))
                }))
            })
        }
        Reply::FetchOffsets(fetched) => result(fetched, |topics| {
            join_lines(topics.iter().flat_map(|topic| {
                topic
                    .partitions
                    .iter()
                    .map(|(index, fetched)| format!("{}-{index} {}", topic.name, describe_offset(fetched)))
            }))
        }),
        Reply::DeleteOffsets(deleted) => result(deleted, |topics| {
            join_lines(
                topics.iter().map(|deleted| format!("{} {}", deleted.topic, result(&deleted.result, ok))),
            )
        }),
        Reply::ListGroups(groups) => join_lines(groups.iter().map(|group| {
            format!("{} '{}' {} {}", group.id, group.protocol_type, group.state, group.kind.name())
        })),
        Reply::DescribeGroups(groups) => {
            join_lines(groups.iter().map(|(id, group)| format!("{id} {}", result(group, describe_group))))
        }
        Reply::DescribeConsumerGroups(groups) => join_lines(
            groups.iter().map(|(id, group)| format!("{id} {}", result(group, describe_consumer_group))),
        ),
        Reply::DeleteGroups(groups) => {
            join_lines(groups.iter().map(|(id, deleted)| format!("{id} {}", result(deleted, ok))))
        }
    };
    short(&text)
}

fn describe_joined(joined: &Joined) -> String {
    format!(
        "joined: {} generation {} protocol {} leader {}{} members {:?}",
        joined.member_id,
        joined.generation,
        joined.protocol.as_deref().unwrap_or("-"),
        joined.leader.as_deref().unwrap_or("-"),
        if joined.skip_assignment { " (skip assignment)" } else { "" },
        joined.members.iter().map(|member| &*member.member_id).collect::<Vec<_>>(),
    )
}

fn describe_group(group: &ClassicDescription) -> String {
    let member = |member: &DescribedMember| {
        let instance = member.instance_id.as_ref().map(|id| format!(" instance {id}")).unwrap_or_default();
        format!(
            "{}{instance} client {} at {} metadata {:?} assignment {:?}",
            member.member_id, member.client_id, member.client_host, member.metadata, member.assignment
        )
    };
    let head = format!(
        "{} '{}' protocol {}",
        group.state.name(),
        group.protocol_type,
        group.protocol.as_deref().unwrap_or("-")
    );
    join_lines(std::iter::once(head).chain(group.members.iter().map(member)))
}

fn describe_beat(beat: &HeartbeatReply) -> String {
    let topic = |(topic, partitions): &(TopicId, Vec<PartitionIndex>)| {
        let name: String =
            topic.as_bytes().iter().filter(|byte| **byte != 0).map(|byte| char::from(*byte)).collect();
        format!("{name}{:?}", partitions.iter().map(|index| index.0).collect::<Vec<_>>())
    };
    let has = |assignment: &TopicPartitions| assignment.iter().map(topic).collect::<Vec<_>>().join(" ");
    let assignment = beat.assignment.as_ref().map_or("as before".to_owned(), has);
    format!("{} epoch {} has {assignment}", beat.member_id, beat.member_epoch)
}

fn describe_consumer_group(group: &Described) -> String {
    let topics = |topics: &[DescribedTopic]| {
        let topic = |topic: &DescribedTopic| {
            format!("{}{:?}", topic.name, topic.partitions.iter().map(|index| index.0).collect::<Vec<_>>())
        };
        topics.iter().map(topic).collect::<Vec<_>>().join(" ")
    };
    let member = |member: &consumer::DescribedMember| {
        let kind = if member.is_classic { " (classic)" } else { "" };
        let (has, target) = (topics(&member.assigned), topics(&member.target));
        format!("{}{kind} epoch {} has {has} target {target}", member.member_id, member.member_epoch)
    };
    let head = format!(
        "{} epoch {} target epoch {} by {}",
        group.state.name(),
        group.epoch,
        group.target_epoch,
        group.assignor
    );
    join_lines(std::iter::once(head).chain(group.members.iter().map(member)))
}

fn describe_offset(fetched: &FetchedOffset) -> String {
    match fetched {
        FetchedOffset::None => "none".to_owned(),
        FetchedOffset::Unstable => "unstable".to_owned(),
        FetchedOffset::Offset { offset, leader_epoch, metadata } => {
            format!("at {offset} epoch {leader_epoch} '{metadata}'")
        }
    }
}

fn join_lines(lines: impl Iterator<Item = String>) -> String {
    let lines: Vec<String> = lines.collect();
    if lines.is_empty() { "nothing".to_owned() } else { lines.join("\n") }
}

/// Ids in commands are short as well.
fn long(line: &str) -> String {
    let mut words = Vec::new();
    for word in line.split(' ') {
        let Some((key @ ("member" | "assign"), ids)) = word.split_once('=') else {
            words.push(word.to_owned());
            continue;
        };
        words.push(format!("{key}={}", ids.split(',').map(long_id).collect::<Vec<_>>().join(",")));
    }
    words.join(" ")
}

#[test]
fn scripts_hold() {
    for directory in ["classic", "offsets", "admin", "migration"] {
        check_scripts(&format!("tests/group/{directory}"), || {
            let mut script = Script::new();
            move |line: &str| short(&script.run(&long(line)))
        });
    }
}
