//! What holds of all groups of a partition whatever happens to them. After each step the log folds to the same hard state
//! (`harness`). Each token is replied to once. Offsets are what a simple model says, through moves of the coordinator in
//! the middle of anything; a move leaves each member of the last generation in its group. And time alone ends everything.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::super::classic::{CONSUMER_PROTOCOL_TYPE, Join, Leaving, State, Sync};
use super::super::command::{CommitOffsets, CommitPartition, CommitTopic, FetchOffsets, Identity};
use super::super::consumer::{ConsumerConfig, Heartbeat, JOIN_EPOCH, LEAVE_EPOCH, TopicPartitions};
use super::super::reply::FetchedOffset;
use super::harness::{Harness, assignment, subscription};
use super::*;
use crate::types::{LeaderEpoch, PartitionIndex, ProducerEpoch, ProducerId, Uuid};

#[derive(Clone, Debug)]
enum Step {
    Join {
        group: usize,
        who: usize,
        instance: Option<usize>,
        protocols: Vec<usize>,
        is_old: bool,
    },
    Sync {
        group: usize,
        who: usize,
        is_stale: bool,
    },
    Heartbeat {
        group: usize,
        who: usize,
    },
    Leave {
        group: usize,
        who: usize,
    },
    /// Of the consumer protocol.
    Beat {
        group: usize,
        who: usize,
        kind: Beat,
        topics: usize,
    },
    Commit {
        group: usize,
        who: Option<usize>,
        topic: usize,
        partition: i32,
        producer: Option<i64>,
    },
    End {
        producer: i64,
        result: TxnResult,
        is_fencing: bool,
    },
    DeleteOffset {
        group: usize,
        topic: usize,
        partition: i32,
    },
    DeleteGroup {
        group: usize,
    },
    Tick {
        ms: i64,
    },
    Move,
}

#[derive(Clone, Copy, Debug)]
enum Beat {
    Join,
    /// In its epoch, with what it has.
    Stay,
    /// In another epoch.
    Stale,
    Leave,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (group, who) = (0..3usize, 0..6usize);
    let protocols = prop::collection::vec(0..3usize, 1..3);
    let result = prop_oneof![2 => Just(TxnResult::Commit), 1 => Just(TxnResult::Abort)];
    let place = (0..2usize, 0..2i32);
    let beat = prop_oneof![
        2 => Just(Beat::Join),
        4 => Just(Beat::Stay),
        1 => Just(Beat::Stale),
        1 => Just(Beat::Leave),
    ];
    let step = prop_oneof![
        6 => (group.clone(), who.clone(), prop::option::weighted(0.3, 0..2usize), protocols, any::<bool>()).prop_map(
            |(group, who, instance, protocols, is_old)| Step::Join { group, who, instance, protocols, is_old }
        ),
        6 => (group.clone(), who.clone(), prop::bool::weighted(0.1))
            .prop_map(|(group, who, is_stale)| Step::Sync { group, who, is_stale }),
        2 => (group.clone(), who.clone()).prop_map(|(group, who)| Step::Heartbeat { group, who }),
        1 => (group.clone(), who.clone()).prop_map(|(group, who)| Step::Leave { group, who }),
        6 => (group.clone(), 0..3usize, beat, 1..4usize)
            .prop_map(|(group, who, kind, topics)| Step::Beat { group, who, kind, topics }),
        6 => (group.clone(), prop::option::of(who), place.clone(), prop::option::of(0..2i64)).prop_map(
            |(group, who, (topic, partition), producer)| Step::Commit { group, who, topic, partition, producer }
        ),
        2 => (0..2i64, result, any::<bool>())
            .prop_map(|(producer, result, is_fencing)| Step::End { producer, result, is_fencing }),
        1 => (group.clone(), place)
            .prop_map(|(group, (topic, partition))| Step::DeleteOffset { group, topic, partition }),
        1 => group.prop_map(|group| Step::DeleteGroup { group }),
        4 => prop_oneof![0..5i64, 1_000..20_000i64, 50_000..400_000i64].prop_map(|ms| Step::Tick { ms }),
        1 => Just(Step::Move),
    ];
    prop::collection::vec(step, 1..60)
}

type Place = (Name, Name, PartitionIndex);

/// Offsets in the plainest way: when each was committed, and the offset.
#[derive(Debug, Default)]
struct Model {
    committed: BTreeMap<Place, (u64, Offset)>,
    pending: BTreeMap<ProducerId, BTreeMap<Place, (u64, Offset)>>,
    count: u64,
}

impl Model {
    fn commit(&mut self, producer: Option<Producer>, place: Place, offset: Offset) {
        self.count += 1;
        let commit = (self.count, offset);
        match producer {
            Some(producer) => self.pending.entry(producer.id).or_default().insert(place, commit),
            None => self.committed.insert(place, commit),
        };
    }

    fn end(&mut self, producer: ProducerId, result: TxnResult) {
        let brought = self.pending.remove(&producer).unwrap_or_default();
        for (place, commit) in brought.into_iter().filter(|_| result == TxnResult::Commit) {
            let known = self.committed.entry(place).or_insert(commit);
            *known = commit.max(*known);
        }
    }

    fn forget(&mut self, is_gone: impl Fn(&Place) -> bool) {
        self.committed.retain(|place, _| !is_gone(place));
        self.pending.values_mut().for_each(|pending| pending.retain(|place, _| !is_gone(place)));
    }
}

struct World {
    harness: Harness,
    model: Model,
    waiting: BTreeSet<ReplyToken>,
    tokens: u64,
    epochs: BTreeMap<i64, i16>,
    /// The ids that each group has given out or let in.
    known: BTreeMap<Name, BTreeSet<Name>>,
    /// What each member of the consumer protocol was told last: its epoch, and what it has.
    told: BTreeMap<(Name, Name), (i32, TopicPartitions)>,
}

fn group_name(group: usize) -> Name {
    format!("g{group}").into()
}

fn topic_name(topic: usize) -> Name {
    format!("t{topic}").into()
}

fn topic_id(topic: usize) -> Uuid {
    Uuid::from_u128(topic as u128 + 1)
}

impl World {
    fn new(max_size: usize) -> World {
        let mut settings = Settings::default();
        settings.classic.max_size = max_size;
        settings.offsets.retention_ms = 3_600_000;
        let mut world = World {
            harness: Harness::new(settings),
            model: Model::default(),
            waiting: BTreeSet::new(),
            tokens: 0,
            epochs: BTreeMap::new(),
            known: BTreeMap::new(),
            told: BTreeMap::new(),
        };
        for topic in 0..2 {
            world.harness.add_topic(&topic_name(topic), topic_id(topic), 2);
        }
        world
    }

    /// Some member of the group, or nobody.
    fn someone(&self, group: &Name, who: usize) -> Name {
        self.known.get(group).and_then(|ids| ids.iter().rev().nth(who)).cloned().unwrap_or_default()
    }

    /// The generation of the group, or the epoch of the member.
    fn generation(&self, group: &Name, member: &Name) -> i32 {
        match self.harness.groups.groups.get(group).map(|entry| &entry.group) {
            Some(Group::Classic(group)) => group.generation(),
            Some(Group::Consumer(group)) => {
                let described = group.describe(&ConsumerConfig::default(), &self.harness.image);
                let member = described.members.iter().find(|known| known.member_id == *member);
                member.map_or(0, |member| member.member_epoch)
            }
            None => 0,
        }
    }

    fn identity(&self, group: &Name, who: usize) -> Identity {
        let member_id = self.someone(group, who);
        let generation = Some(self.generation(group, &member_id));
        Identity { member_id, instance_id: None, generation }
    }

    fn command(&mut self, command: Command) -> Result<Option<Reply>, TestCaseError> {
        self.tokens += 1;
        let token = ReplyToken(self.tokens);
        self.waiting.insert(token);
        let out = self.harness.step(token, command);
        let own = out.replies.iter().find(|(replied, _)| *replied == token).map(|(_, reply)| reply.clone());
        self.take(out)?;
        Ok(own)
    }

    fn take(&mut self, out: Out) -> Result<(), TestCaseError> {
        for (token, reply) in out.replies {
            prop_assert!(self.waiting.remove(&token), "replied to twice: {:?}", token);
            if let Reply::Join(joined) = reply {
                let id = joined.map_or_else(|refused| refused.member_id, |joined| joined.member_id);
                for group in 0..3 {
                    // Strangers to the other groups, which do not mind.
                    self.known.entry(group_name(group)).or_default().insert(id.clone());
                }
            }
        }
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match step {
            Step::Join { .. } | Step::Sync { .. } | Step::Heartbeat { .. } | Step::Leave { .. } => {
                self.member_step(step)?;
            }
            Step::Beat { group, who, kind, topics } => {
                self.beat(group_name(*group), &format!("m{who}").into(), *kind, *topics)?;
            }
            Step::Commit { group, who, topic, partition, producer } => {
                self.commit(&group_name(*group), *who, topic_name(*topic), *partition, *producer)?;
            }
            Step::End { producer, result, is_fencing } => {
                let epoch = self.epochs.entry(*producer).or_default();
                *epoch += i16::from(*is_fencing);
                let producer = Producer { id: ProducerId(*producer), epoch: ProducerEpoch(*epoch) };
                self.model.end(producer.id, *result);
                self.harness.end_transaction(producer, *result);
            }
            Step::DeleteOffset { group, topic, partition } => {
                let (group, topic, partition) =
                    (group_name(*group), topic_name(*topic), PartitionIndex(*partition));
                let topics = vec![(topic.clone(), vec![partition])];
                let reply = self.command(Command::DeleteOffsets { group: group.clone(), topics })?;
                if let Some(Reply::DeleteOffsets(Ok(deleted))) = reply
                    && deleted[0].result.is_ok()
                {
                    self.model.forget(|place| *place == (group.clone(), topic.clone(), partition));
                }
            }
            Step::DeleteGroup { group } => {
                let group = group_name(*group);
                let reply = self.command(Command::DeleteGroups(vec![group.clone()]))?;
                if let Some(Reply::DeleteGroups(deleted)) = reply
                    && deleted[0].1.is_ok()
                {
                    self.model.forget(|place| place.0 == group);
                }
            }
            Step::Tick { ms } => {
                self.harness.set_time(self.harness.now.monotonic.0 + ms);
                let out = self.harness.tick();
                self.take(out)?;
            }
            Step::Move => {
                // The driver sends away who waits.
                self.waiting.clear();
                let settled = self.settled_members();
                let out = self.harness.move_on();
                self.take(out)?;
                for (group, members) in settled {
                    prop_assert_eq!(self.members(&group), members);
                }
            }
        }
        self.check_offsets()
    }

    fn settled_members(&self) -> Vec<(Name, Vec<Name>)> {
        let is_settled = |group: &Group| match group {
            Group::Classic(group) => group.state() == State::Stable,
            Group::Consumer(_) => true,
        };
        let settled = self.harness.groups.groups.iter().filter(|(_, entry)| is_settled(&entry.group));
        settled.map(|(id, _)| (id.clone(), self.members(id))).collect()
    }

    fn members(&self, group: &Name) -> Vec<Name> {
        match &self.harness.groups.groups[group].group {
            Group::Classic(group) => {
                group.describe().members.into_iter().map(|member| member.member_id).collect()
            }
            Group::Consumer(group) => {
                let described = group.describe(&ConsumerConfig::default(), &self.harness.image);
                described.members.into_iter().map(|member| member.member_id).collect()
            }
        }
    }

    fn beat(
        &mut self,
        group: Name,
        member_id: &Name,
        kind: Beat,
        topics: usize,
    ) -> Result<(), TestCaseError> {
        let told = self.told.get(&(group.clone(), member_id.clone())).cloned().unwrap_or_default();
        let is_joining = matches!(kind, Beat::Join);
        let heartbeat = Heartbeat {
            member_id: member_id.clone(),
            member_epoch: match kind {
                Beat::Join => JOIN_EPOCH,
                Beat::Stay => told.0,
                Beat::Stale => told.0 - 1,
                Beat::Leave => LEAVE_EPOCH,
            },
            instance_id: None,
            rack: None,
            rebalance_timeout_ms: is_joining.then_some(60_000),
            topics: is_joining
                .then(|| (0..2).filter(|topic| topics & (1 << topic) != 0).map(topic_name).collect()),
            regex: None,
            assignor: None,
            owned: Some(if is_joining { Vec::new() } else { told.1.clone() }),
            client_id: "c".into(),
            client_host: "/127.0.0.1".into(),
            fresh: Uuid::from_u128(u128::from(self.tokens)),
        };
        let command = Command::ConsumerHeartbeat { group: group.clone(), heartbeat: Box::new(heartbeat) };
        let reply = self.command(command)?;
        let place = (group.clone(), member_id.clone());
        match reply {
            Some(Reply::ConsumerHeartbeat(Ok(_))) if matches!(kind, Beat::Leave) => {
                self.told.remove(&place);
            }
            Some(Reply::ConsumerHeartbeat(Ok(reply))) => {
                self.known.entry(group).or_default().insert(member_id.clone());
                let (epoch, owned) = self.told.entry(place).or_default();
                *epoch = reply.member_epoch;
                if let Some(assignment) = reply.assignment {
                    *owned = assignment;
                }
            }
            Some(Reply::ConsumerHeartbeat(Err(_))) if !is_joining => {
                self.told.remove(&place);
            }
            _ => {}
        }
        Ok(())
    }

    fn member_step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        let command = match step {
            Step::Join { group, who, instance, protocols, is_old } => {
                let group = group_name(*group);
                let protocol =
                    |name: &usize| (Name::from(format!("p{name}")), subscription(["t0"].into_iter()));
                let join = Join {
                    member_id: self.someone(&group, *who),
                    instance_id: instance.map(|instance| format!("i{instance}").into()),
                    client_id: "c".into(),
                    client_host: "/127.0.0.1".into(),
                    session_timeout_ms: 10_000,
                    rebalance_timeout_ms: 60_000,
                    protocol_type: CONSUMER_PROTOCOL_TYPE.into(),
                    protocols: protocols.iter().map(protocol).collect(),
                    requires_known_id: !is_old,
                    can_skip_assignment: !is_old,
                    fresh: Uuid::from_u128(u128::from(self.tokens)),
                };
                Command::Join { group, join: Box::new(join) }
            }
            Step::Sync { group, who, is_stale } => {
                let group = group_name(*group);
                let member_id = self.someone(&group, *who);
                let generation = self.generation(&group, &member_id) - i32::from(*is_stale);
                let all: Vec<_> = (0..2).map(|index| (topic_name(0), PartitionIndex(index))).collect();
                let sync = Sync {
                    assignments: vec![(member_id.clone(), assignment(&all))],
                    member_id,
                    instance_id: None,
                    generation,
                    protocol_type: None,
                    protocol: None,
                };
                Command::Sync { group, sync }
            }
            Step::Heartbeat { group, who } => {
                let group = group_name(*group);
                Command::Heartbeat { member: self.identity(&group, *who), group }
            }
            Step::Leave { group, who } => {
                let group = group_name(*group);
                let leaving = Leaving { member_id: self.someone(&group, *who), instance_id: None };
                Command::Leave { group, leaving: vec![leaving] }
            }
            _ => return Ok(()),
        };
        self.command(command)?;
        Ok(())
    }

    fn commit(
        &mut self,
        group: &Name,
        who: Option<usize>,
        topic: Name,
        partition: i32,
        producer: Option<i64>,
    ) -> Result<(), TestCaseError> {
        let index = PartitionIndex(partition);
        let offset = Offset(self.tokens as i64);
        let stored =
            CommitPartition { index, offset, leader_epoch: LeaderEpoch::UNKNOWN, metadata: "".into() };
        let commit = CommitOffsets {
            group: group.clone(),
            member: who.map_or_else(Identity::nobody, |who| self.identity(group, who)),
            knows_epochs: true,
            retention_ms: None,
            topics: vec![CommitTopic { id: id_of(&topic), name: topic.clone(), partitions: vec![stored] }],
        };
        let producer = producer.map(|id| {
            let epoch = self.epochs.get(&id).copied().unwrap_or_default();
            Producer { id: ProducerId(id), epoch: ProducerEpoch(epoch) }
        });
        let command = match producer {
            Some(producer) => Command::CommitOffsetsInTransaction { producer, since: None, commit },
            None => Command::CommitOffsets(commit),
        };
        let reply = self.command(command)?;
        if let Some(Reply::CommitOffsets(Ok(_)) | Reply::CommitOffsetsInTransaction(Ok(_))) = reply {
            self.model.commit(producer, (group.clone(), topic, index), offset);
        }
        Ok(())
    }

    fn check_offsets(&self) -> Result<(), TestCaseError> {
        for group in 0..3 {
            let group = group_name(group);
            let fetch = |require_stable| FetchOffsets {
                group: group.clone(),
                member: None,
                topics: None,
                require_stable,
            };
            let all = |require_stable| {
                let fetched = self.harness.groups.fetch(fetch(require_stable)).expect("anybody may ask");
                fetched.into_iter().flat_map(|topic| {
                    let name = topic.name;
                    topic.partitions.into_iter().map(move |(index, fetched)| ((name.clone(), index), fetched))
                })
            };
            let mut expected = BTreeMap::new();
            for ((_, topic, index), (_, offset)) in
                self.model.committed.iter().filter(|(place, _)| place.0 == group)
            {
                expected.insert((topic.clone(), *index), *offset);
            }
            let mut found = BTreeMap::new();
            for (place, fetched) in all(false) {
                let FetchedOffset::Offset { offset, .. } = fetched else { panic!("{fetched:?}") };
                found.insert(place, offset);
            }
            prop_assert_eq!(found, expected);
            for ((topic, index), fetched) in all(true) {
                let place = (group.clone(), topic, index);
                let is_open = self.model.pending.values().any(|pending| pending.contains_key(&place));
                prop_assert_eq!(fetched == FetchedOffset::Unstable, is_open);
            }
        }
        Ok(())
    }
}

fn id_of(topic: &str) -> Uuid {
    topic_id(if topic == "t0" { 0 } else { 1 })
}

proptest! {
    #[test]
    fn groups_keep_their_laws(steps in steps(), max_size in 1..5usize) {
        let mut world = World::new(max_size);
        for step in &steps {
            world.step(step)?;
        }
        for producer in 0..2 {
            world.step(&Step::End { producer, result: TxnResult::Abort, is_fencing: false })?;
        }
        world.harness.check_compacted();
        // Time alone ends everything: within some hours the offsets have expired, and the groups are gone.
        world.model = Model::default();
        for _ in 0..1_000 {
            if world.harness.groups.groups.is_empty() {
                break;
            }
            let deadline = world.harness.groups.next_deadline().expect("something is left to do");
            let ms = (deadline.0 - world.harness.now.monotonic.0).max(0);
            world.harness.set_time(world.harness.now.monotonic.0 + ms);
            let out = world.harness.tick();
            world.take(out)?;
        }
        prop_assert!(world.harness.groups.groups.is_empty());
        prop_assert!(world.waiting.is_empty());
        prop_assert_eq!(world.harness.groups.offsets.topic_count(), 0);
    }
}
