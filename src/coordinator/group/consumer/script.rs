//! Runs the scripts in `tests/group/consumer/*.txt`: commands to one group, then `----`, then what they must lead to.
//! `UPDATE_EXPECT=1 cargo test consumer` writes what the code does into the scripts.
//!
//! A command is a word, often a member, and `key=value` arguments; `now=` on any command sets the clock first. Partitions are
//! `t1:0,1;t2:0`. What a member owns is what it says with `owned=` (`owned=-` for nothing).

use std::fmt::Write as _;

use bytes::{BufMut, Bytes, BytesMut};

use super::super::classic::{Join, Leaving, Sync};
use super::super::command::Identity;
use super::super::record::Record;
use super::super::{Name, Out};
use super::harness::Harness;
use super::*;
use crate::coordinator::Context;
use crate::metadata::tests::replay::check_scripts;
use crate::wire::messages::StrBytes;
use crate::wire::messages::codec;
use crate::wire::messages::consumer_protocol::{
    ConsumerProtocolAssignment, ConsumerProtocolPartitions, ConsumerProtocolSubscription,
};
use crate::wire::messages::groups::CurrentTopicPartitions;

#[derive(Default)]
struct Script {
    world: Harness,
    /// Names of all topics that there have been.
    names: BTreeMap<TopicId, String>,
    fresh: u128,
}

fn arg<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let mut pairs = line.split_whitespace().filter_map(|word| word.split_once('='));
    pairs.find(|(name, _)| *name == key).map(|(_, value)| value)
}

fn int(line: &str, key: &str) -> Option<i32> {
    arg(line, key).map(|text| text.parse().expect("a number"))
}

fn list(text: &str) -> Vec<Name> {
    text.split(',').filter(|name| *name != "-").map(Name::from).collect()
}

fn word(line: &str, at: usize) -> &str {
    line.split_whitespace().nth(at).expect("another word")
}

/// `t1:0,1;t2:0` by name.
fn partitions(text: &str) -> Vec<(&str, Vec<PartitionIndex>)> {
    let topics = text.split(';').filter(|topic| *topic != "-");
    topics
        .map(|topic| {
            let (name, indexes) = topic.split_once(':').expect("a topic and partitions");
            let indexes = indexes.split(',').map(|index| PartitionIndex(index.parse().expect("a number")));
            (name, indexes.collect())
        })
        .collect()
}

impl Script {
    fn run(&mut self, line: &str) -> String {
        if let Some(now) = int(line, "now") {
            self.world.set_clock(now.into());
        }
        let mut text = String::new();
        let (said, records) = self.step(line);
        for record in &records {
            let _ = writeln!(text, "  {}", self.describe_record(record));
        }
        for line in said.lines() {
            let _ = writeln!(text, "{line}");
        }
        text
    }

    fn step(&mut self, line: &str) -> (String, Vec<Record>) {
        match word(line, 0) {
            "topic" | "grow" => {
                let (name, count) = (word(line, 1), word(line, 2).parse().expect("a number"));
                match word(line, 0) {
                    "topic" => self.world.cluster.add_topic(name, count),
                    _ => self.world.cluster.add_partitions(name, count),
                }
                let topic = self.world.cluster.image().topics.by_name(name).expect("a topic");
                self.names.insert(topic.id, name.to_owned());
            }
            "drop" => self.world.cluster.remove_topic(word(line, 1)),
            "config" => self.configure(line),
            "join" | "beat" | "leave" => {
                let request = self.heartbeat(line);
                let (result, records) = self.world.beat(&request);
                return (self.describe_beat(result), records);
            }
            "tick" => {
                let (downgrade, records) = self.world.tick();
                return (self.describe_downgrade(downgrade), records);
            }
            "move" => self.world.change_coordinator(),
            "begin" => {
                self.world.begin_with(ConsumerGroup::new("g".into()), Vec::new());
            }
            "upgrade" => return self.upgrade(line),
            "state" => return (self.state(), Vec::new()),
            "describe" => return (self.describe(), Vec::new()),
            "commit" => return (self.commit(line), Vec::new()),
            "fetch" => {
                let member = arg(line, "member");
                let result = self.world.group.check_fetch(member, int(line, "epoch").unwrap_or(-1));
                return (result.map_or_else(|error| error.to_string(), |()| "ok".to_owned()), Vec::new());
            }
            "old_record" => return self.old_record(),
            classic => return self.classic(classic, line),
        }
        (String::new(), Vec::new())
    }

    fn configure(&mut self, line: &str) {
        let config = &mut self.world.config;
        if let Some(max) = int(line, "max") {
            config.max_size = max as usize;
        }
        if let Some(interval) = int(line, "interval") {
            config.assignment_interval_ms = interval;
        }
        if let Some(name) = arg(line, "assignor") {
            config.default_assignor = Assignor::named(name).expect("an assignor");
        }
        if let Some(name) = arg(line, "migration") {
            config.migration = MigrationPolicy::named(name).expect("a policy");
        }
        if let Some(max) = int(line, "classic_max") {
            config.classic_max_size = max as usize;
        }
    }

    /// `join` asks for all that a first request must have.
    fn heartbeat(&mut self, line: &str) -> Heartbeat {
        let is_join = word(line, 0) == "join";
        let epoch = match word(line, 0) {
            "leave" => LEAVE_EPOCH,
            _ => JOIN_EPOCH,
        };
        self.fresh += 1;
        Heartbeat {
            member_id: match word(line, 1) {
                "-" => "".into(),
                id => id.into(),
            },
            member_epoch: int(line, "epoch").unwrap_or(epoch),
            instance_id: arg(line, "instance").map(Name::from),
            rack: arg(line, "rack").map(Name::from),
            rebalance_timeout_ms: int(line, "timeout").or(is_join.then_some(60_000)),
            topics: arg(line, "topics").map(list),
            regex: arg(line, "regex").map(|regex| regex.trim_start_matches('-').into()),
            assignor: arg(line, "assignor").map(Name::from),
            owned: arg(line, "owned").or(is_join.then_some("-")).map(|text| self.by_id(text)),
            client_id: "c".into(),
            client_host: "/127.0.0.1".into(),
            fresh: Uuid::from_u128(self.fresh),
        }
    }

    fn by_id(&self, text: &str) -> TopicPartitions {
        let topics = partitions(text).into_iter();
        topics.map(|(name, indexes)| (self.id(name), indexes)).collect()
    }

    /// Of the topic that there is, or else was last, under this name.
    fn id(&self, name: &str) -> TopicId {
        *self.names.iter().rfind(|(_, known)| *known == name).expect("a topic").0
    }

    fn old_record(&mut self) -> (String, Vec<Record>) {
        use crate::wire::messages::groups::{
            ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue,
        };
        let record = Record::ConsumerGroupPartitionMetadata(
            ConsumerGroupPartitionMetadataKey { group_id: "g".into(), ..Default::default() },
            Some(ConsumerGroupPartitionMetadataValue::default()),
        );
        self.world.group.replay(&record);
        self.world.log.push(record);
        (String::new(), Vec::new())
    }

    fn upgrade(&mut self, line: &str) -> (String, Vec<Record>) {
        let members = line.split_whitespace().skip(1).filter(|word| !word.contains('='));
        let members = members.map(|id| {
            let assigned = arg(line, &format!("{id}.owned")).unwrap_or("-");
            let assignment = match assigned {
                "-" => Bytes::new(),
                text => embedded_assignment(text, arg(line, "user_data")),
            };
            let protocols = classic_protocols(line, &format!("{id}."));
            ClassicMember {
                id: id.into(),
                instance_id: arg(line, &format!("{id}.instance")).map(Name::from),
                client_id: "c".into(),
                client_host: "/127.0.0.1".into(),
                rebalance_timeout_ms: 60_000,
                session_timeout_ms: 10_000,
                protocols,
                assignment,
            }
        });
        let upgrade = Upgrade {
            generation: int(line, "generation").unwrap_or(5),
            protocol: "range".into(),
            members: members.collect(),
        };
        let context =
            Context { now: self.world.now, image: self.world.cluster.image(), record_max: usize::MAX };
        let mut out = Out::default();
        let (watch, config) = (&mut self.world.watch, &self.world.config);
        match ConsumerGroup::upgrade("g".into(), &context, watch, config, &upgrade, &mut out) {
            Ok(group) => {
                let records: Vec<Record> = out.records.into_iter().map(|write| write.record).collect();
                self.world.begin_with(group, records.clone());
                (String::new(), records)
            }
            Err(error) => (error.to_string(), Vec::new()),
        }
    }

    fn classic(&mut self, command: &str, line: &str) -> (String, Vec<Record>) {
        let member_id: Name = match word(line, 1) {
            "-" => "".into(),
            id => id.into(),
        };
        let instance_id = arg(line, "instance").map(Name::from);
        let generation = int(line, "generation");
        match command {
            "cjoin" => {
                self.fresh += 1;
                let join = classic_join(line, &member_id, instance_id, self.fresh);
                let (result, records) = self.world.step(|group, context, watch, config, out| {
                    group.join_classic(context, watch, config, &join, out)
                });
                let said = match result {
                    Ok(Done { reply, downgrade }) => {
                        let protocol = reply.protocol.unwrap_or_default();
                        let id = reply.member_id;
                        format!(
                            "joined: {id} generation {} protocol {protocol}\n{}",
                            reply.generation,
                            self.describe_downgrade(downgrade)
                        )
                    }
                    Err(refused) => format!("'{}': {}", refused.member_id, refused.error),
                };
                (said, records)
            }
            "csync" => {
                let sync = Sync {
                    member_id,
                    instance_id,
                    generation: generation.expect("a generation"),
                    protocol_type: arg(line, "type").map(Name::from),
                    protocol: arg(line, "protocol").map(Name::from),
                    assignments: Vec::new(),
                };
                let (result, records) =
                    self.world.step(|group, context, _, _, _| group.sync_classic(context, &sync));
                let said = match result {
                    Ok(synced) => {
                        let (named, _) =
                            super::embedded::assignment(&synced.assignment).expect("an assignment");
                        let version = i16::from_be_bytes([synced.assignment[0], synced.assignment[1]]);
                        let named = named.iter().map(|(name, indexes)| format!("{name}:{}", joined(indexes)));
                        format!("synced, version {version}: {}", named.collect::<Vec<_>>().join(" "))
                    }
                    Err(error) => error.to_string(),
                };
                (said, records)
            }
            "cbeat" => {
                let identity = Identity { member_id, instance_id, generation };
                let (result, records) = self.world.step(|group, context, watch, config, out| {
                    group.heartbeat_classic(context, watch, config, &identity, out)
                });
                (result.map_or_else(|error| error.to_string(), |()| "ok".to_owned()), records)
            }
            "cleave" => {
                let leaving: Vec<Leaving> = line
                    .split_whitespace()
                    .skip(1)
                    .map(|who| {
                        let (id, instance) = who.split_once('/').map_or((who, None), |(id, i)| (id, Some(i)));
                        Leaving {
                            member_id: if id == "-" { "".into() } else { id.into() },
                            instance_id: instance.map(Name::from),
                        }
                    })
                    .collect();
                let ((results, downgrade), records) =
                    self.world.step(|group, context, watch, config, out| {
                        group.leave_classic(context, watch, config, &leaving, out)
                    });
                let mut said = String::new();
                for result in results {
                    let _ = writeln!(
                        said,
                        "{}",
                        result.map_or_else(|error| error.to_string(), |()| "ok".to_owned())
                    );
                }
                said += &self.describe_downgrade(downgrade);
                (said, records)
            }
            _ => panic!("{line}: no such command"),
        }
    }

    fn state(&self) -> String {
        let group = &self.world.group;
        let deadline = group.next_deadline().map_or("-".to_owned(), |at| at.to_string());
        let members: Vec<String> =
            group.members.iter().map(|(id, member)| format!("{id}@{}", member.epoch)).collect();
        format!(
            "{} epoch {} target {} members {} deadline {deadline}",
            group.state().name(),
            group.epoch,
            group.target_epoch,
            members.join(","),
        )
    }

    fn describe(&self) -> String {
        let described = self.world.group.describe(&self.world.config, self.world.cluster.image());
        let mut text = format!(
            "{} epoch {} target {} assignor {}\n",
            described.state.name(),
            described.epoch,
            described.target_epoch,
            described.assignor
        );
        let topics = |topics: &[DescribedTopic]| {
            let topics: Vec<String> =
                topics.iter().map(|topic| format!("{}:{}", topic.name, joined(&topic.partitions))).collect();
            topics.join(" ")
        };
        for member in described.members {
            let _ = writeln!(
                text,
                "{}@{} {} instance {} rack {} topics [{}] regex '{}' assigned [{}] target [{}]",
                member.member_id,
                member.member_epoch,
                if member.is_classic { "classic" } else { "consumer" },
                member.instance_id.as_deref().unwrap_or("-"),
                member.rack.as_deref().unwrap_or("-"),
                member.topics.join(","),
                member.regex.as_deref().unwrap_or("-"),
                topics(&member.assigned),
                topics(&member.target),
            );
        }
        text
    }

    /// `commit member=A epoch=3 t1:0`
    fn commit(&self, line: &str) -> String {
        let group = &self.world.group;
        let member = arg(line, "member").unwrap_or_default();
        let epoch = int(line, "epoch").unwrap_or(-1);
        let check = group.check_commit(
            member,
            arg(line, "instance"),
            epoch,
            line.contains(" txn"),
            line.contains(" old"),
        );
        let check = match check {
            Ok(check) => check,
            Err(error) => return error.to_string(),
        };
        let mut text = String::new();
        for (topic, indexes) in line.split_whitespace().filter(|word| word.contains(':')).flat_map(partitions)
        {
            for index in indexes {
                let result = check.check(self.id(topic), index);
                let _ = writeln!(
                    text,
                    "{topic}-{index} {}",
                    result.map_or_else(|error| error.to_string(), |()| "ok".to_owned())
                );
            }
        }
        text
    }

    fn topics(&self, assignment: impl Iterator<Item = (TopicId, Vec<PartitionIndex>)>) -> String {
        let topics: Vec<String> = assignment
            .map(|(topic, indexes)| format!("{}:{}", self.names[&topic], joined(&indexes)))
            .collect();
        topics.join(" ")
    }

    fn owned(&self, stored: &[CurrentTopicPartitions]) -> String {
        let topics = stored.iter().map(|topic| {
            let epochs = topic.assignment_epochs.as_deref().unwrap_or_default();
            let with_epochs: Vec<String> = topic
                .partitions
                .iter()
                .zip(epochs)
                .map(|(index, epoch)| format!("{index}@{epoch}"))
                .collect();
            format!("{}:{}", self.names[&topic.topic_id], with_epochs.join(","))
        });
        topics.collect::<Vec<_>>().join(" ")
    }

    fn describe_record(&self, record: &Record) -> String {
        match record {
            Record::ConsumerGroupMetadata(_, Some(value)) => {
                format!(
                    "epoch {}{}",
                    value.epoch,
                    if value.metadata_hash == 0 { " of no topics" } else { "" }
                )
            }
            Record::ConsumerGroupMemberMetadata(key, Some(value)) => {
                let topics: Vec<&str> = value.subscribed_topic_names.iter().map(StrBytes::as_str).collect();
                let mut text = format!("member {}: topics [{}]", key.member_id.as_str(), topics.join(","));
                for (name, value) in [
                    ("regex", value.subscribed_topic_regex.as_ref().filter(|regex| !regex.is_empty())),
                    ("instance", value.instance_id.as_ref()),
                    ("assignor", value.server_assignor.as_ref()),
                ] {
                    if let Some(value) = value {
                        let _ = write!(text, " {name} {}", value.as_str());
                    }
                }
                if value.classic_member_metadata.is_some() {
                    text += " classic";
                }
                text
            }
            Record::ConsumerGroupTargetAssignmentMetadata(_, Some(value)) => {
                let time = if value.assignment_timestamp == 0 { ", the next at once" } else { "" };
                format!("target epoch {}{time}", value.assignment_epoch)
            }
            Record::ConsumerGroupTargetAssignmentMember(key, Some(value)) => {
                let topics = value.topic_partitions.iter().map(|topic| {
                    (topic.topic_id, topic.partitions.iter().copied().map(PartitionIndex).collect())
                });
                format!("target {}: [{}]", key.member_id.as_str(), self.topics(topics))
            }
            Record::ConsumerGroupCurrentMemberAssignment(key, Some(value)) => {
                let mut text = format!(
                    "current {}: epoch {} after {} {:?} [{}]",
                    key.member_id.as_str(),
                    value.member_epoch,
                    value.previous_member_epoch,
                    super::member::MemberState::from_code(value.state),
                    self.owned(&value.assigned_partitions),
                );
                if !value.partitions_pending_revocation.is_empty() {
                    let _ = write!(text, " revoking [{}]", self.owned(&value.partitions_pending_revocation));
                }
                text
            }
            Record::ConsumerGroupRegularExpression(key, Some(value)) => {
                let topics: Vec<&str> = value.topics.iter().map(StrBytes::as_str).collect();
                format!("regex {}: [{}]", key.regular_expression.as_str(), topics.join(","))
            }
            Record::ConsumerGroupMetadata(_, None) => "no epoch".to_owned(),
            Record::ConsumerGroupPartitionMetadata(_, None) => "no partition metadata".to_owned(),
            Record::ConsumerGroupMemberMetadata(key, None) => format!("no member {}", key.member_id.as_str()),
            Record::ConsumerGroupTargetAssignmentMetadata(_, None) => "no target epoch".to_owned(),
            Record::ConsumerGroupTargetAssignmentMember(key, None) => {
                format!("no target {}", key.member_id.as_str())
            }
            Record::ConsumerGroupCurrentMemberAssignment(key, None) => {
                format!("no current {}", key.member_id.as_str())
            }
            Record::ConsumerGroupRegularExpression(key, None) => {
                format!("no regex {}", key.regular_expression.as_str())
            }
            other => format!("{other:?}"),
        }
    }

    fn describe_beat(&self, result: Result<Done<HeartbeatReply>, HeartbeatError>) -> String {
        match result {
            Ok(Done { reply, downgrade }) => {
                let assignment = match reply.assignment {
                    Some(assignment) => format!("[{}]", self.topics(assignment.into_iter())),
                    None => "as before".to_owned(),
                };
                let downgrade = self.describe_downgrade(downgrade);
                let usual = self.world.config.heartbeat_interval_ms;
                let soon =
                    if (1..usual).contains(&reply.heartbeat_interval_ms) { ", comes soon" } else { "" };
                format!("{} epoch {} {assignment}{soon}\n{downgrade}", reply.member_id, reply.member_epoch)
            }
            Err(error) => error.to_string(),
        }
    }

    fn describe_downgrade(&self, downgrade: Option<Downgrade>) -> String {
        let Some(downgrade) = downgrade else { return String::new() };
        let mut text = format!(
            "classic from now on: generation {}{}\n",
            downgrade.generation,
            if downgrade.rebalance { ", rebalances" } else { "" }
        );
        for member in downgrade.members {
            let (_, metadata) = &member.protocols[0];
            let (named, _) =
                super::embedded::assignment(&member.assignment.encode(metadata)).expect("an assignment");
            let named = named.iter().map(|(name, indexes)| format!("{name}:{}", joined(indexes)));
            let _ = writeln!(text, "{}: {}", member.id, named.collect::<Vec<_>>().join(" "));
        }
        text
    }
}

fn joined(indexes: &[PartitionIndex]) -> String {
    let indexes: Vec<String> = indexes.iter().map(ToString::to_string).collect();
    indexes.join(",")
}

fn classic_join(line: &str, member_id: &Name, instance_id: Option<Name>, fresh: u128) -> Join {
    Join {
        member_id: member_id.clone(),
        instance_id,
        client_id: "c".into(),
        client_host: "/127.0.0.1".into(),
        session_timeout_ms: int(line, "session").unwrap_or(10_000),
        rebalance_timeout_ms: 60_000,
        protocol_type: arg(line, "type").unwrap_or("consumer").into(),
        protocols: classic_protocols(line, ""),
        requires_known_id: !line.contains(" old"),
        can_skip_assignment: true,
        fresh: Uuid::from_u128(fresh),
    }
}

/// `protocols=range,sticky topics=t1,t2 owned=t1:0 version=3`, or `metadata=` with bytes that mean nothing.
fn classic_protocols(line: &str, prefix: &str) -> Vec<(Name, Bytes)> {
    let argument = |key: &str| arg(line, &format!("{prefix}{key}")).or_else(|| arg(line, key));
    let version: i16 = argument("version").map_or(3, |text| text.parse().expect("a version"));
    let owned = argument("owned").map(partitions).unwrap_or_default();
    let subscription = ConsumerProtocolSubscription {
        topics: argument("topics").map(list).unwrap_or_default().iter().map(super::stored::text).collect(),
        owned_partitions: if prefix.is_empty() { embedded_partitions(owned) } else { Vec::new() },
        rack_id: argument("rack").map(|rack| super::stored::text(&rack.into())),
        ..Default::default()
    };
    let mut metadata = BytesMut::new();
    metadata.put_i16(version);
    codec::encode_message(&subscription, &mut metadata, version).expect("a subscription");
    let metadata = match argument("metadata") {
        Some(text) => Bytes::copy_from_slice(text.as_bytes()),
        None => metadata.freeze(),
    };
    let names = list(argument("protocols").unwrap_or("range"));
    names.into_iter().map(|name| (name, metadata.clone())).collect()
}

fn embedded_partitions(named: Vec<(&str, Vec<PartitionIndex>)>) -> Vec<ConsumerProtocolPartitions> {
    let partitions = named.into_iter().map(|(name, indexes)| ConsumerProtocolPartitions {
        topic: super::stored::text(&name.into()),
        partitions: indexes.iter().map(|index| index.0).collect(),
        ..Default::default()
    });
    partitions.collect()
}

fn embedded_assignment(text: &str, user_data: Option<&str>) -> Bytes {
    let message = ConsumerProtocolAssignment {
        assigned_partitions: embedded_partitions(partitions(text)),
        user_data: user_data.map(|data| Bytes::copy_from_slice(data.as_bytes())),
        ..Default::default()
    };
    let mut bytes = BytesMut::new();
    bytes.put_i16(1);
    codec::encode_message(&message, &mut bytes, 1).expect("an assignment");
    bytes.freeze()
}

#[test]
fn scripts_hold() {
    check_scripts("tests/group/consumer", || {
        let mut script = Script::default();
        move |line: &str| script.run(line)
    });
}
