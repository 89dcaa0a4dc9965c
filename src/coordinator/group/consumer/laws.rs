//! What holds of a consumer group whatever happens to it: answers that get lost, clients that die, topics that come and go,
//! coordinators that change. The log folds to the group, and no partition is held twice (`harness`); what a client has, its
//! member holds, so nobody is given what another has not given up; a new coordinator kicks nobody out; and when all is
//! quiet, each partition that somebody wants is had by exactly one client, who wants it.

use std::collections::BTreeSet;

use bytes::{BufMut, Bytes, BytesMut};
use proptest::prelude::*;

use super::super::Name;
use super::super::classic::{HeartbeatError as ClassicHeartbeatError, Join, MemberError, Sync};
use super::super::command::Identity;
use super::harness::Harness;
use super::*;
use crate::wire::messages::codec;
use crate::wire::messages::consumer_protocol::{ConsumerProtocolPartitions, ConsumerProtocolSubscription};

const TOPICS: [&str; 3] = ["t1", "t2", "u1"];
const REGEXES: [&str; 3] = ["t.*", ".*1", "none"];
const CLIENTS: usize = 4;
const INSTANCES: usize = 2;

type Partitions = BTreeSet<(TopicId, PartitionIndex)>;

#[derive(Clone, Debug)]
enum Wants {
    Topics(BTreeSet<usize>),
    Regex(usize),
}

impl Wants {
    fn names(&self, of: &[&str]) -> Vec<Name> {
        let matches = |name: &&&str| match self {
            Wants::Topics(topics) => topics.iter().any(|topic| TOPICS[*topic] == **name),
            Wants::Regex(0) => name.starts_with('t'),
            Wants::Regex(1) => name.ends_with('1'),
            Wants::Regex(_) => false,
        };
        of.iter().filter(matches).map(|name| Name::from(*name)).collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Consumer,
    Classic,
}

#[derive(Clone, Debug)]
enum Step {
    Start {
        slot: usize,
        protocol: Protocol,
        instance: Option<usize>,
        wants: Wants,
        assignor: Option<Assignor>,
    },
    Beat {
        slot: usize,
        is_lost: bool,
    },
    Settle {
        slot: usize,
    },
    Resubscribe {
        slot: usize,
        wants: Wants,
    },
    Leave {
        slot: usize,
        will_be_back: bool,
    },
    Crash {
        slot: usize,
    },
    Pass {
        ms: i64,
    },
    Create {
        topic: usize,
        partitions: usize,
    },
    Grow {
        topic: usize,
    },
    Drop {
        topic: usize,
    },
    ChangeCoordinator,
}

fn wants() -> impl Strategy<Value = Wants> {
    prop_oneof![
        3 => prop::collection::btree_set(0..TOPICS.len(), 0..=TOPICS.len()).prop_map(Wants::Topics),
        1 => (0..REGEXES.len()).prop_map(Wants::Regex),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let slot = 0..CLIENTS;
    let topic = 0..TOPICS.len();
    let protocol = prop_oneof![3 => Just(Protocol::Consumer), 1 => Just(Protocol::Classic)];
    let assignor = prop_oneof![Just(None), Just(Some(Assignor::Range)), Just(Some(Assignor::Uniform))];
    let instance = prop::option::weighted(0.3, 0..INSTANCES);
    let step = prop_oneof![
        4 => (slot.clone(), protocol, instance, wants(), assignor).prop_map(
            |(slot, protocol, instance, wants, assignor)| Step::Start { slot, protocol, instance, wants, assignor }
        ),
        14 => (slot.clone(), prop::bool::weighted(0.2)).prop_map(|(slot, is_lost)| Step::Beat { slot, is_lost }),
        8 => slot.clone().prop_map(|slot| Step::Settle { slot }),
        2 => (slot.clone(), wants()).prop_map(|(slot, wants)| Step::Resubscribe { slot, wants }),
        1 => (slot.clone(), any::<bool>()).prop_map(|(slot, will_be_back)| Step::Leave { slot, will_be_back }),
        1 => slot.prop_map(|slot| Step::Crash { slot }),
        4 => prop_oneof![0..3_000i64, 5_000..20_000i64, 40_000..100_000i64].prop_map(|ms| Step::Pass { ms }),
        2 => (topic.clone(), 1..5usize).prop_map(|(topic, partitions)| Step::Create { topic, partitions }),
        1 => topic.clone().prop_map(|topic| Step::Grow { topic }),
        1 => topic.prop_map(|topic| Step::Drop { topic }),
        1 => Just(Step::ChangeCoordinator),
    ];
    prop::collection::vec(step, 1..80)
}

/// A consumer, as the group's members know themselves.
#[derive(Clone, Debug)]
struct Client {
    id: Name,
    protocol: Protocol,
    instance: Option<Name>,
    wants: Wants,
    assignor: Option<Assignor>,
    /// 0 while it is not in.
    epoch: i32,
    /// What it reads.
    has: Partitions,
    /// What it has been told to have.
    told: Partitions,
    /// An answer got lost, or it asks for something new: the next request is full.
    is_to_tell_all: bool,
    /// A classic one has to join.
    is_to_join: bool,
    /// A classic one has joined under the id of a member whose session had ended, and has heard of neither. Unlike one of the
    /// new protocol it is let in like somebody new, and still reads what others may have been given.
    is_behind: bool,
}

impl Client {
    fn is_settled(&self) -> bool {
        self.has == self.told
    }

    fn settle(&mut self) {
        self.has.clone_from(&self.told);
    }

    fn forget_all(&mut self) {
        self.epoch = 0;
        self.has.clear();
        self.told.clear();
        self.is_to_join = true;
        self.is_behind = false;
    }
}

struct World {
    harness: Harness,
    clients: Vec<Option<Client>>,
    started: u128,
}

fn listed(partitions: &Partitions) -> TopicPartitions {
    let mut listed: BTreeMap<TopicId, Vec<PartitionIndex>> = BTreeMap::new();
    for (topic, index) in partitions {
        listed.entry(*topic).or_default().push(*index);
    }
    listed.into_iter().collect()
}

fn unlisted(listed: &TopicPartitions) -> Partitions {
    listed.iter().flat_map(|(topic, indexes)| indexes.iter().map(|index| (*topic, *index))).collect()
}

impl World {
    fn new() -> World {
        let mut harness = Harness::default();
        // The last one to speak the consumer protocol leaves a consumer group.
        harness.config.migration = MigrationPolicy::Upgrade;
        harness.cluster.add_topic("t1", 3);
        World { harness, clients: vec![None; CLIENTS], started: 0 }
    }

    fn topics(&self) -> Vec<String> {
        self.harness.cluster.image().topics.iter().map(|topic| topic.name.to_string()).collect()
    }

    fn has_topic(&self, topic: usize) -> bool {
        self.harness.cluster.image().topics.by_name(TOPICS[topic]).is_some()
    }

    fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match step {
            Step::Start { slot, protocol, instance, wants, assignor } => {
                if self.clients[*slot].is_some()
                    || self.harness.group.is_empty() && *protocol == Protocol::Classic
                {
                    return Ok(());
                }
                self.started += 1;
                self.clients[*slot] = Some(Client {
                    id: format!("m{}", self.started).into(),
                    protocol: *protocol,
                    instance: instance.map(|instance| format!("i{instance}").into()),
                    wants: wants.clone(),
                    assignor: *assignor,
                    epoch: 0,
                    has: Partitions::new(),
                    told: Partitions::new(),
                    is_to_tell_all: false,
                    is_to_join: true,
                    is_behind: false,
                });
                self.beat(*slot, false)?;
            }
            Step::Beat { slot, is_lost } => self.beat(*slot, *is_lost)?,
            Step::Settle { slot } => {
                if let Some(client) = &mut self.clients[*slot] {
                    client.settle();
                }
            }
            Step::Resubscribe { slot, wants } => {
                if let Some(client) = &mut self.clients[*slot] {
                    client.wants = wants.clone();
                    client.is_to_tell_all = true;
                    client.is_to_join = true;
                }
            }
            Step::Leave { slot, will_be_back } => self.leave(*slot, *will_be_back),
            Step::Crash { slot } => self.clients[*slot] = None,
            Step::Pass { ms } => {
                self.harness.set_clock(self.harness.now.monotonic.0 + ms);
                let (downgrade, _) = self.harness.tick();
                prop_assert_eq!(None, downgrade);
            }
            Step::Create { topic, partitions } if !self.has_topic(*topic) => {
                self.harness.cluster.add_topic(TOPICS[*topic], *partitions);
            }
            Step::Grow { topic } if self.has_topic(*topic) => {
                self.harness.cluster.add_partitions(TOPICS[*topic], 1);
            }
            Step::Drop { topic } if self.has_topic(*topic) => {
                self.harness.cluster.remove_topic(TOPICS[*topic]);
            }
            Step::Create { .. } | Step::Grow { .. } | Step::Drop { .. } => {}
            Step::ChangeCoordinator => {
                let before = self.harness.group.members.clone();
                self.harness.change_coordinator();
                let (_, records) = self.harness.tick();
                prop_assert_eq!(&before, &self.harness.group.members);
                prop_assert!(records.is_empty());
            }
        }
        self.check()
    }

    fn beat(&mut self, slot: usize, is_lost: bool) -> Result<(), TestCaseError> {
        let Some(mut client) = self.clients[slot].take() else { return Ok(()) };
        let stays = match client.protocol {
            Protocol::Consumer => self.beat_consumer(&mut client, is_lost),
            Protocol::Classic => self.beat_classic(&mut client, is_lost)?,
        };
        if stays {
            self.clients[slot] = Some(client);
        }
        Ok(())
    }

    /// False when the client has to give up for good.
    fn beat_consumer(&mut self, client: &mut Client, is_lost: bool) -> bool {
        let tells_all = client.epoch == 0 || client.is_to_tell_all;
        let (topics, regex) = match &client.wants {
            Wants::Topics(_) => (client.wants.names(&TOPICS), "".into()),
            Wants::Regex(regex) => (Vec::new(), Name::from(REGEXES[*regex])),
        };
        let owned = (client.epoch == 0 || client.is_settled()).then(|| listed(&client.has));
        let request = Heartbeat {
            member_id: client.id.clone(),
            member_epoch: client.epoch,
            instance_id: client.instance.clone(),
            rack: None,
            rebalance_timeout_ms: tells_all.then_some(30_000),
            topics: tells_all.then_some(topics),
            regex: tells_all.then_some(regex),
            assignor: client.assignor.filter(|_| tells_all).map(|assignor| assignor.name().into()),
            owned,
            client_id: "c".into(),
            client_host: "/127.0.0.1".into(),
            fresh: Uuid::from_u128(self.started),
        };
        let (result, records) = self.harness.beat(&request);
        if result.is_err() {
            assert!(records.is_empty(), "a refused request has changed something");
        }
        if is_lost {
            client.is_to_tell_all = true;
            return true;
        }
        match result {
            Ok(done) => {
                client.epoch = done.reply.member_epoch;
                if let Some(assignment) = &done.reply.assignment {
                    client.told = unlisted(assignment);
                }
                // Until it is settled it cannot tell what it has, which is part of telling all.
                client.is_to_tell_all &= request.owned.is_none();
                true
            }
            Err(HeartbeatError::UnknownMember | HeartbeatError::FencedMemberEpoch) => {
                client.forget_all();
                true
            }
            Err(HeartbeatError::FencedInstance | HeartbeatError::UnreleasedInstance) => false,
            Err(error) => panic!("{error}"),
        }
    }

    fn beat_classic(&mut self, client: &mut Client, is_lost: bool) -> Result<bool, TestCaseError> {
        if self.harness.group.is_empty() {
            // Then it would be a classic group.
            return Ok(false);
        }
        if !client.is_to_join {
            let identity = Identity {
                member_id: client.id.clone(),
                instance_id: client.instance.clone(),
                generation: Some(client.epoch),
            };
            let (result, _) = self.harness.step(|group, context, watch, config, out| {
                group.heartbeat_classic(context, watch, config, &identity, out)
            });
            match result {
                Err(ClassicHeartbeatError::Member(MemberError::Unknown)) => client.forget_all(),
                Err(ClassicHeartbeatError::Member(MemberError::FencedInstance)) => return Ok(false),
                Err(_) => client.is_to_join = true,
                Ok(()) => {}
            }
            return Ok(true);
        }
        client.is_behind |= client.epoch != 0 && !self.harness.group.members.contains_key(&client.id);
        let join = self.classic_join(client);
        let (result, _) = self.harness.step(|group, context, watch, config, out| {
            group.join_classic(context, watch, config, &join, out)
        });
        let Ok(done) = result else { return Ok(false) };
        prop_assert_eq!(None, done.downgrade);
        client.id = done.reply.member_id;
        if is_lost {
            return Ok(true);
        }
        client.epoch = done.reply.generation;
        let sync = Sync {
            member_id: client.id.clone(),
            instance_id: client.instance.clone(),
            generation: client.epoch,
            protocol_type: None,
            protocol: None,
            assignments: Vec::new(),
        };
        let (result, _) = self.harness.step(|group, context, _, _, _| group.sync_classic(context, &sync));
        let Ok(synced) = result else { return Ok(true) };
        let (named, _) = super::embedded::assignment(&synced.assignment).expect("an assignment");
        client.told = unlisted(&super::embedded::identified(&named, self.harness.cluster.image()));
        // It joins again to tell that it has given up.
        client.is_to_join = !client.has.is_subset(&client.told);
        client.is_behind = false;
        client.settle();
        Ok(true)
    }

    fn classic_join(&mut self, client: &Client) -> Join {
        let image = self.harness.cluster.image();
        let owned = listed(&client.has).into_iter().filter_map(|(topic, indexes)| {
            let topic = image.topics.by_id(topic)?;
            Some(ConsumerProtocolPartitions {
                topic: super::stored::text(&topic.name),
                partitions: indexes.iter().map(|index| index.0).collect(),
                ..Default::default()
            })
        });
        let subscription = ConsumerProtocolSubscription {
            topics: client.wants.names(&TOPICS).iter().map(super::stored::text).collect(),
            owned_partitions: owned.collect(),
            ..Default::default()
        };
        let mut metadata = BytesMut::new();
        metadata.put_i16(1);
        codec::encode_message(&subscription, &mut metadata, 1).expect("a subscription");
        self.started += 1;
        Join {
            // A static member that starts has no id.
            member_id: if client.epoch == 0 && client.instance.is_some() {
                "".into()
            } else {
                client.id.clone()
            },
            instance_id: client.instance.clone(),
            client_id: "c".into(),
            client_host: "/127.0.0.1".into(),
            session_timeout_ms: 20_000,
            rebalance_timeout_ms: 30_000,
            protocol_type: "consumer".into(),
            protocols: vec![("range".into(), Bytes::from(metadata))],
            requires_known_id: false,
            can_skip_assignment: true,
            fresh: Uuid::from_u128(self.started),
        }
    }

    fn leave(&mut self, slot: usize, will_be_back: bool) {
        let Some(client) = self.clients[slot].take() else { return };
        let is_static = client.instance.is_some();
        let request = Heartbeat {
            member_id: client.id.clone(),
            member_epoch: if will_be_back && is_static { LEAVE_STATIC_EPOCH } else { LEAVE_EPOCH },
            instance_id: client.instance.clone(),
            rack: None,
            rebalance_timeout_ms: None,
            topics: None,
            regex: None,
            assignor: None,
            owned: None,
            client_id: "c".into(),
            client_host: "/127.0.0.1".into(),
            fresh: Uuid::from_u128(0),
        };
        let (result, _) = self.harness.beat(&request);
        if result.is_ok() && will_be_back && is_static && client.protocol == Protocol::Consumer {
            self.started += 1;
            let id: Name = format!("m{}", self.started).into();
            let mut client = Client { id, ..client };
            client.forget_all();
            self.clients[slot] = Some(client);
        }
    }

    /// What clients have, their members hold.
    fn check(&self) -> Result<(), TestCaseError> {
        for client in self.clients.iter().flatten().filter(|client| !client.is_behind) {
            let Some(member) = self.harness.group.members.get(&client.id) else { continue };
            let held: Partitions = member.held().collect();
            let exists = |(topic, _): &(TopicId, PartitionIndex)| {
                self.harness.cluster.image().topics.by_id(*topic).is_some()
            };
            let has: Partitions = client.has.iter().copied().filter(exists).collect();
            prop_assert!(has.is_subset(&held), "{} has {:?} but {:?}", client.id, client.has, member);
        }
        Ok(())
    }

    /// Nothing happens any more, but time passes and clients heartbeat.
    fn calm_down(&mut self) -> Result<(), TestCaseError> {
        let mut last_changed = 0;
        for round in 0..60 {
            self.harness.set_clock(self.harness.now.monotonic.0 + 5_000);
            let written = self.harness.log.len();
            self.harness.tick();
            for slot in 0..CLIENTS {
                if let Some(client) = &mut self.clients[slot] {
                    client.settle();
                    client.is_to_tell_all |= client.protocol == Protocol::Consumer && round % 2 == 0;
                }
                self.beat(slot, false)?;
                self.check()?;
            }
            if self.harness.log.len() > written {
                last_changed = round;
            }
        }
        prop_assert!(last_changed < 55, "the group finds no rest");
        self.check_complete()
    }

    fn check_complete(&self) -> Result<(), TestCaseError> {
        let group = &self.harness.group;
        prop_assert_eq!(self.clients.iter().flatten().count(), group.members.len());
        if !group.is_empty() {
            prop_assert_eq!(State::Stable, group.state());
        }
        let names = self.topics();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let image = self.harness.cluster.image();
        let mut wanted = Partitions::new();
        let mut had = Vec::new();
        for client in self.clients.iter().flatten() {
            let topics = client.wants.names(&names);
            let wants: Partitions = topics
                .iter()
                .filter_map(|name| image.topics.by_name(name))
                .flat_map(|topic| topic.partitions().map(|(index, _)| (topic.id, index)))
                .collect();
            prop_assert!(client.has.is_subset(&wants), "{} has {:?}", client.id, client.has);
            wanted.extend(wants);
            had.extend(client.has.iter().copied());
        }
        let count = had.len();
        prop_assert_eq!(wanted, had.into_iter().collect::<Partitions>());
        prop_assert_eq!(count, self.clients.iter().flatten().map(|client| client.has.len()).sum::<usize>());
        let distinct: usize = self.harness.group.owners.len();
        prop_assert_eq!(count, distinct, "a partition has two readers");
        Ok(())
    }
}

proptest! {
    #[test]
    fn a_group_keeps_its_laws(steps in steps()) {
        let mut world = World::new();
        for step in &steps {
            world.step(step)?;
        }
        world.calm_down()?;
    }
}
