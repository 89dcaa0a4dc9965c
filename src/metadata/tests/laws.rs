//! The fold law under random commands: whatever a cluster goes through, the bytes of its log and of its snapshot fold to
//! its live image (`Cluster::commit` checks both), and each partition keeps its invariants.

use super::Cluster;
use crate::metadata::alter_partition::{ProposedIsr, alter_partition};
use crate::metadata::balance::balance_leaders;
use crate::metadata::brokers::{self, Heartbeat, Known, Registration};
use crate::metadata::configs::{self, ConfigOp, ConfigResource, ConfigRules, ResourceType};
use crate::metadata::elect_leaders::{ElectionType, elect_leaders};
use crate::metadata::election::ElectionDefaults;
use crate::metadata::features::{self, MetadataVersion};
use crate::metadata::producer_ids;
use crate::metadata::reassign::{Reassignment, reassign};
use crate::metadata::topics::{
    self, CreateTopicsOptions, LeaderRecoveryState, MorePartitions, NewTopic, PartitionRegistration, TopicRef,
};
use crate::metadata::unclean::{Candidates, Leaderless, LogEnd, LogEnds, elect_unclean_leaders};
use crate::metadata::{Decision, Image, Record};
use crate::types::{
    BrokerEpoch, LeaderEpoch, NodeId, Offset, PartitionIndex, TopicIdPartition, TopicPartition, Uuid,
};
use crate::wire::messages::metadata as schema;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Clone, Debug)]
enum Command {
    Register {
        id: i32,
        incarnation: u128,
        clean: bool,
        rack: u8,
    },
    Heartbeat {
        id: i32,
        fence: bool,
        shutdown: bool,
    },
    Fence {
        id: i32,
    },
    Unregister {
        id: i32,
    },
    Create {
        name: u8,
        partitions: i32,
        factor: i16,
        seed: u64,
    },
    Delete {
        name: u8,
    },
    Grow {
        name: u8,
        to: i32,
    },
    Config {
        kind: u8,
        name: u8,
        key: u8,
        value: Option<u8>,
    },
    Ids {
        id: i32,
    },
    Foreign {
        kind: u8,
        name: u8,
    },
    /// The leader wants another ISR: the replicas whose bits are set, and itself.
    Isr {
        name: u8,
        index: i32,
        members: u8,
        recovering: bool,
    },
    Elect {
        name: Option<u8>,
        unclean: bool,
    },
    Reassign {
        name: u8,
        index: i32,
        replicas: Option<Vec<i32>>,
        any_factor: bool,
    },
    Balance {
        tolerated: u8,
    },
    ElectUnclean,
}

fn command() -> impl Strategy<Value = Command> {
    let id = 1..5i32;
    prop_oneof![
        4 => (id.clone(), 1..4u128, any::<bool>(), 0..3u8)
            .prop_map(|(id, incarnation, clean, rack)| Command::Register { id, incarnation, clean, rack }),
        8 => (id.clone(), prop::bool::weighted(0.1), prop::bool::weighted(0.2))
            .prop_map(|(id, fence, shutdown)| Command::Heartbeat { id, fence, shutdown }),
        2 => id.clone().prop_map(|id| Command::Fence { id }),
        1 => id.clone().prop_map(|id| Command::Unregister { id }),
        4 => (0..6u8, 1..4i32, 1..4i16, any::<u64>())
            .prop_map(|(name, partitions, factor, seed)| Command::Create { name, partitions, factor, seed }),
        1 => (0..6u8).prop_map(|name| Command::Delete { name }),
        2 => (0..6u8, 1..6i32).prop_map(|(name, to)| Command::Grow { name, to }),
        3 => (0..4u8, 0..6u8, 0..3u8, prop::option::of(1..3u8))
            .prop_map(|(kind, name, key, value)| Command::Config { kind, name, key, value }),
        1 => id.prop_map(|id| Command::Ids { id }),
        1 => (0..9u8, 0..3u8).prop_map(|(kind, name)| Command::Foreign { kind, name }),
        8 => (0..6u8, 0..3i32, any::<u8>(), prop::bool::weighted(0.1)).prop_map(
            |(name, index, members, recovering)| Command::Isr { name, index, members, recovering }
        ),
        2 => (prop::option::of(0..6u8), any::<bool>())
            .prop_map(|(name, unclean)| Command::Elect { name, unclean }),
        4 => (
            (0..6u8, 0..3i32),
            prop::option::weighted(0.8, prop::sample::subsequence(vec![1, 2, 3, 4], 1..4).prop_shuffle()),
            prop::bool::weighted(0.8),
        )
            .prop_map(|((name, index), replicas, any_factor)| {
                Command::Reassign { name, index, replicas, any_factor }
            }),
        1 => (0..100u8).prop_map(|tolerated| Command::Balance { tolerated }),
        1 => Just(Command::ElectUnclean),
    ]
}

fn topic_name(name: u8) -> Arc<str> {
    Arc::from(format!("topic{name}"))
}

const RULES: ConfigRules<'static> =
    ConfigRules { is_list: &|_, _| false, default: &|_, _| None, validate: &|_, _| Ok(()) };

struct Run {
    cluster: Cluster,
    defaults: ElectionDefaults,
    topics: u128,
}

impl Run {
    fn epoch(&self, id: i32) -> BrokerEpoch {
        self.cluster.image.brokers.get(NodeId(id)).map_or(BrokerEpoch::UNKNOWN, |broker| broker.epoch)
    }

    fn decide(&mut self, command: Command) -> Decision<()> {
        let epoch = |id| self.epoch(id);
        let image = &self.cluster.image;
        match command {
            Command::Register { id, incarnation, clean, rack } => {
                let registration =
                    registration(id, incarnation, rack, if clean { epoch(id) } else { BrokerEpoch(-1) });
                brokers::register(image, &registration, false, self.defaults).map(drop)
            }
            Command::Heartbeat { id, fence, shutdown } => {
                let heartbeat = Heartbeat {
                    id: NodeId(id),
                    epoch: epoch(id),
                    metadata_offset: image.version.offset().plus(-1),
                    want_fence: fence,
                    want_shutdown: shutdown,
                    offline_directories: vec![],
                    cordoned_directories: Some(vec![]),
                };
                let known = Known { others_caught_up: true, insists: false };
                brokers::heartbeat(image, &heartbeat, known, self.defaults).map(drop)
            }
            Command::Fence { id } => brokers::fence(image, NodeId(id), epoch(id), self.defaults).map(drop),
            Command::Unregister { id } => brokers::unregister(image, NodeId(id), self.defaults).map(drop),
            Command::Create { name, partitions, factor, seed } => {
                self.topics += 1;
                let topic = NewTopic {
                    name: topic_name(name),
                    id: Uuid::from_u128(self.topics),
                    partitions: Some(partitions),
                    replication_factor: Some(factor),
                    configs: vec![("min.insync.replicas".into(), Some("2".into()))],
                    ..NewTopic::default()
                };
                let options = CreateTopicsOptions {
                    default_partitions: 1,
                    default_replication_factor: 1,
                    validate_only: false,
                    seed,
                };
                topics::create_topics(image, &[topic], options, &RULES).map(drop)
            }
            Command::Delete { name } => {
                topics::delete_topics(image, &[TopicRef::Name(topic_name(name))]).map(drop)
            }
            Command::Grow { name, to } => {
                let more = MorePartitions { topic: topic_name(name), count: to, assignments: None };
                topics::create_partitions(image, &[more], false, 7).map(drop)
            }
            Command::Config { kind, name, key, value } => {
                let resource = match kind {
                    0 => ConfigResource::topic(topic_name(name)),
                    1 => ConfigResource::new(ResourceType::Broker, name.to_string()),
                    2 => ConfigResource::cluster(),
                    _ => ConfigResource::new(ResourceType::Group, "group"),
                };
                let key: Arc<str> = ["min.insync.replicas", "a", "b"][key as usize].into();
                let op = value.map_or(ConfigOp::Delete, |value| ConfigOp::Set(value.to_string().into()));
                configs::incremental_alter_configs(image, &[(resource, vec![(key, op)])], false, &RULES)
                    .map(drop)
            }
            Command::Ids { id } => producer_ids::allocate(image, NodeId(id), epoch(id)).map(drop),
            Command::Foreign { kind, name } => Decision::new(vec![foreign(kind, name)], ()),
            command => self.decide_on_partitions(command),
        }
    }

    fn decide_on_partitions(&self, command: Command) -> Decision<()> {
        let (image, defaults) = (&self.cluster.image, self.defaults);
        match command {
            Command::Isr { name, index, members, recovering } => {
                let Some((topic, partition)) = image.topics.by_name(&topic_name(name)).and_then(|topic| {
                    let partition = topic.partition(PartitionIndex(index))?;
                    partition.has_leader().then_some((topic, partition))
                }) else {
                    return Decision::reply(());
                };
                let is_in = |id: &NodeId| *id == partition.leader || members & (1 << id.0) != 0;
                let proposal = ProposedIsr {
                    partition: TopicIdPartition { topic_id: topic.id, partition: PartitionIndex(index) },
                    leader_epoch: partition.leader_epoch,
                    partition_epoch: partition.partition_epoch,
                    isr: (1..5).map(NodeId).filter(is_in).map(|id| (id, BrokerEpoch::UNKNOWN)).collect(),
                    recovery_state: match recovering {
                        true => LeaderRecoveryState::Recovering,
                        false => LeaderRecoveryState::Recovered,
                    },
                };
                let epoch = self.epoch(partition.leader.0);
                alter_partition(image, partition.leader, epoch, &[proposal.clone(), proposal], defaults)
                    .map(drop)
            }
            Command::Elect { name, unclean } => {
                let kind = if unclean { ElectionType::Unclean } else { ElectionType::Preferred };
                let named = name.map(|name| [TopicPartition::new(topic_name(name), 0)]);
                elect_leaders(image, kind, named.as_ref().map(|named| &named[..]), &LogEnds::new(), defaults)
                    .map(drop)
            }
            Command::Reassign { name, index, replicas, any_factor } => {
                let replicas = replicas.map(|ids| ids.into_iter().map(NodeId).collect());
                let partition = TopicPartition::new(topic_name(name), index);
                reassign(image, &[Reassignment { partition, replicas }], any_factor, defaults).map(drop)
            }
            Command::Balance { tolerated } => balance_leaders(image, tolerated, 3, defaults).map(drop),
            Command::ElectUnclean => {
                let mut leaderless = Leaderless::default();
                leaderless.follow(image);
                let due = leaderless.due(image, defaults);
                let end = |id: &NodeId| LogEnd { epoch: LeaderEpoch(0), offset: Offset(i64::from(id.0 % 3)) };
                let ends = |due: &Candidates| {
                    (due.partition, due.replicas.iter().map(|id| (*id, end(id))).collect())
                };
                let ends: LogEnds = due.iter().map(ends).collect();
                elect_unclean_leaders(image, due.iter().map(|due| due.partition), &ends, defaults)
            }
            _ => unreachable!("not on partitions: {command:?}"),
        }
    }
}

fn registration(id: i32, incarnation: u128, rack: u8, previous_epoch: BrokerEpoch) -> Registration {
    let features: BTreeMap<Arc<str>, (i16, i16)> = features::supported_features()
        .into_iter()
        .map(|(name, min, max)| (Arc::from(name), (min, max)))
        .collect();
    Registration {
        id: NodeId(id),
        incarnation: Uuid::from_u128(incarnation),
        endpoints: vec![],
        features,
        rack: (rack > 0).then(|| Arc::from(format!("rack{rack}"))),
        directories: vec![Uuid::from_u128(1000 + id as u128)],
        previous_epoch,
    }
}

/// Records that nothing here decides yet, but that the image keeps.
fn foreign(kind: u8, name: u8) -> Record {
    let text = format!("name{name}");
    let id = Uuid::from_u128(u128::from(name));
    match kind {
        0 => schema::AccessControlEntryRecord { id, principal: text.into(), ..Default::default() }.into(),
        1 => schema::RemoveAccessControlEntryRecord { id, ..Default::default() }.into(),
        2 => {
            schema::UserScramCredentialRecord { name: text.into(), mechanism: 1, ..Default::default() }.into()
        }
        3 => {
            schema::RemoveUserScramCredentialRecord { name: text.into(), mechanism: 1, ..Default::default() }
                .into()
        }
        4 => schema::DelegationTokenRecord { token_id: text.into(), ..Default::default() }.into(),
        5 => schema::RemoveDelegationTokenRecord { token_id: text.into(), ..Default::default() }.into(),
        6 => schema::RegisterControllerRecord { controller_id: i32::from(name), ..Default::default() }.into(),
        7 => {
            schema::UnregisterControllerRecord { controller_id: i32::from(name), ..Default::default() }.into()
        }
        _ => schema::ClientQuotaRecord {
            entity: vec![schema::EntityData {
                entity_type: "user".into(),
                entity_name: None,
                ..Default::default()
            }],
            key: text.into(),
            value: 1.5,
            remove: name == 2,
            ..Default::default()
        }
        .into(),
    }
}

fn check_partition(image: &Image, partition: &PartitionRegistration) {
    let leader = partition.leader;
    assert!(leader == NodeId::NONE || partition.isr.contains(&leader), "a leader is in sync: {partition:?}");
    assert!(leader == NodeId::NONE || image.brokers.is_active(leader), "a leader lives: {partition:?}");
    let mut replicas = partition.replicas.clone();
    replicas.sort_unstable();
    replicas.dedup();
    assert_eq!(replicas.len(), partition.replicas.len(), "one replica on a broker: {partition:?}");
    let mut isr = partition.isr.clone();
    isr.sort_unstable();
    isr.dedup();
    assert_eq!(isr.len(), partition.isr.len(), "in sync once: {partition:?}");
    assert!(partition.isr.iter().all(|id| partition.has_replica(*id)));
    assert!(partition.adding.iter().all(|id| partition.has_replica(*id)), "{partition:?}");
    assert!(partition.removing.iter().all(|id| partition.has_replica(*id)), "{partition:?}");
    assert!(partition.adding.iter().all(|id| !partition.removing.contains(id)), "{partition:?}");
    assert!(partition.elr.iter().all(|id| partition.has_replica(*id) && !partition.isr.contains(id)));
    assert_eq!(partition.directories.len(), partition.replicas.len());
}

/// Leader epochs grow whenever leaders change.
fn check_epochs(before: &Image, after: &Image) {
    for topic in before.topics.iter() {
        for (index, old) in topic.partitions() {
            let Some(new) = after.topics.partition(topic.id, index) else { continue };
            assert!(new.partition_epoch >= old.partition_epoch);
            assert!(new.partition_epoch > old.partition_epoch || new == old);
            let LeaderEpoch(grown) = LeaderEpoch(new.leader_epoch.0 - old.leader_epoch.0);
            assert!(grown >= i32::from(new.leader != old.leader), "{old:?} -> {new:?}");
        }
    }
}

/// Who becomes leader was in sync or eligible, or has to recover. Only the leader of before vouches for others.
fn check_elections(before: &Image, after: &Image) {
    for topic in before.topics.iter() {
        for (index, old) in topic.partitions() {
            let Some(new) = after.topics.partition(topic.id, index) else { continue };
            let held_everything = |id| old.isr.contains(&id) || old.elr.contains(&id);
            let recovers = new.leader_recovery_state == LeaderRecoveryState::Recovering;
            let same = new.leader == old.leader || new.leader == NodeId::NONE;
            assert!(same || held_everything(new.leader) || recovers, "{old:?} -> {new:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn logs_and_snapshots_fold_to_the_live_image(
        commands in prop::collection::vec(command(), 1..60),
        version in prop_oneof![Just("4.4-IV2"), Just("4.4-IV2"), Just("4.0-IV3"), Just("3.7-IV0"), Just("3.3-IV3")],
        unclean in any::<bool>(),
    ) {
        let version = MetadataVersion::from_name(version).expect("a version");
        let defaults = ElectionDefaults { min_insync_replicas: 1, unclean_leader_election: unclean };
        let mut run = Run { cluster: Cluster::default(), defaults, topics: 0 };
        let bootstrap = features::bootstrap_records(version, &[], 1).expect("defaults fit");
        run.cluster.commit(Decision::new(bootstrap, ()));
        for command in commands {
            // A cancelled reassignment may bring back a replica that is not in sync, if unclean leaders are allowed.
            let may_be_unclean = match command {
                Command::Isr { .. } => true,
                Command::Reassign { .. } => unclean,
                _ => false,
            };
            let decision = run.decide(command);
            let before = run.cluster.image.clone();
            run.cluster.commit(decision);
            let image = &run.cluster.image;
            check_epochs(&before, image);
            if !may_be_unclean {
                check_elections(&before, image);
            }
            for topic in image.topics.iter() {
                topic.partitions().for_each(|(_, partition)| check_partition(image, partition));
            }
        }
    }
}
