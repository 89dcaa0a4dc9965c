//! Runs the scripts in `tests/metadata/scripts/*.txt`: commands to a cluster, then `----`, then the records that they
//! lead to and the answers. `UPDATE_EXPECT=1 cargo test metadata` writes what the code does into the scripts.
//!
//! A command is a word, then names and `key=value` arguments; see [`Script::run`] for the words.

mod partitions;

use super::Cluster;
use super::replay::check_scripts;
use crate::config::{AlterError, AlterErrorKind};
use crate::metadata::brokers::{self, Endpoint, Heartbeat, Known, Registration};
use crate::metadata::configs::{self, ConfigOp, ConfigResource, ConfigRules, ConfigValues, ResourceType};
use crate::metadata::election::ElectionDefaults;
use crate::metadata::features::{self, FeatureUpdate, MetadataVersion, UpgradeType};
use crate::metadata::topics::{self, CreateTopicsOptions, MorePartitions, NewTopic, TopicRef};
use crate::metadata::{Decision, producer_ids};
use crate::types::{BrokerEpoch, DirectoryId, NodeId, Offset, PartitionIndex, TopicIdPartition, Uuid};
use std::collections::BTreeMap;
use std::fmt::{Debug, Display};
use std::sync::Arc;

#[derive(Default)]
struct Script {
    cluster: Cluster,
    defaults: ElectionDefaults,
    topics: u128,
}

struct Args<'a> {
    names: Vec<&'a str>,
    pairs: BTreeMap<&'a str, &'a str>,
}

impl<'a> Args<'a> {
    fn parse(words: impl Iterator<Item = &'a str>) -> Args<'a> {
        let (pairs, names): (Vec<_>, Vec<_>) = words.partition(|word| word.contains('='));
        Args { names, pairs: pairs.into_iter().filter_map(|pair| pair.split_once('=')).collect() }
    }

    fn get(&self, key: &str) -> Option<&'a str> {
        self.pairs.get(key).copied()
    }

    fn int(&self, key: &str) -> Option<i64> {
        self.get(key).map(|text| text.parse().unwrap_or_else(|_| panic!("{key}={text} is no number")))
    }

    fn flag(&self, name: &str) -> bool {
        self.names.contains(&name)
    }

    fn node(&self) -> NodeId {
        NodeId(self.names[0].parse().expect("a node id"))
    }

    fn ids(&self, key: &str) -> Vec<DirectoryId> {
        let list = self.get(key).into_iter().flat_map(|list| list.split(',')).filter(|id| !id.is_empty());
        list.map(|id| Uuid::from_u128(id.parse().expect("an id"))).collect()
    }
}

fn nodes(list: &str) -> Vec<NodeId> {
    list.split(',').filter(|id| !id.is_empty()).map(|id| NodeId(id.parse().expect("a node id"))).collect()
}

fn rules() -> ConfigRules<'static> {
    fn validate(_: &ConfigResource, values: &ConfigValues) -> Result<(), AlterError> {
        match values.iter().find(|(_, value)| &***value == "bad") {
            Some((key, value)) => Err(AlterError {
                kind: AlterErrorKind::InvalidConfig,
                key: key.to_string(),
                reason: format!("{value} is refused"),
            }),
            None => Ok(()),
        }
    }
    ConfigRules {
        is_list: &|_, key| key == "cleanup.policy",
        default: &|_, key| (key == "cleanup.policy").then(|| "delete".to_owned()),
        validate: &validate,
    }
}

impl Script {
    /// One command; what happened as text.
    fn run(&mut self, line: &str) -> String {
        let mut words = line.split_whitespace();
        let verb = words.next().expect("a command");
        let args = Args::parse(words);
        match verb {
            "bootstrap" => self.bootstrap(&args),
            "register" => self.register(&args),
            "heartbeat" => self.heartbeat(&args),
            "fence" => {
                let epoch = self.epoch(args.node());
                let decision = brokers::fence(&self.cluster.image, args.node(), epoch, self.defaults);
                self.commit(decision.map(Ok::<_, String>))
            }
            "unregister" => {
                let decision = brokers::unregister(&self.cluster.image, args.node(), self.defaults);
                self.commit(decision)
            }
            "ids" => {
                let epoch = args.int("epoch").map_or_else(|| self.epoch(args.node()), BrokerEpoch);
                let decision = producer_ids::allocate(&self.cluster.image, args.node(), epoch);
                self.commit(decision)
            }
            "place" => self.place(&args),
            "give-up" => self.give_up(&args),
            "create" => self.create(&args),
            "delete" => self.delete(&args),
            "grow" => self.grow(&args),
            "alter" => self.alter(&args),
            "replace" => self.replace(&args),
            "features" => self.features(&args),
            _ => self.run_on_partitions(verb, &args).unwrap_or_else(|| panic!("{line}: no such command")),
        }
    }

    fn commit<R: Debug, E: Display>(&mut self, decision: Decision<Result<R, E>>) -> String {
        let (reply, mut lines) = self.cluster.commit(decision);
        lines.push(outcome(&reply));
        lines.join("\n") + "\n"
    }

    fn commit_each<N: Display, R: Debug, E: Display>(
        &mut self,
        decision: Decision<Vec<(N, Result<R, E>)>>,
    ) -> String {
        let (reply, mut lines) = self.cluster.commit(decision);
        lines.extend(reply.iter().map(|(name, reply)| format!("{name}: {}", outcome(reply))));
        lines.join("\n") + "\n"
    }

    fn epoch(&self, id: NodeId) -> BrokerEpoch {
        self.cluster.image.brokers.get(id).map_or(BrokerEpoch::UNKNOWN, |broker| broker.epoch)
    }

    fn bootstrap(&mut self, args: &Args<'_>) -> String {
        let version = args.get("version").map_or(MetadataVersion::LATEST, |name| {
            MetadataVersion::from_name(name).expect("a metadata version")
        });
        let levels: Vec<(Arc<str>, i16)> = args
            .pairs
            .iter()
            .filter(|(key, _)| **key != "version")
            .map(|(key, level)| (Arc::from(*key), level.parse().expect("a level")))
            .collect();
        match features::bootstrap_records(version, &levels, 1) {
            Ok(records) => self.commit(Decision::new(records, Ok::<_, String>("bootstrapped"))),
            Err(error) => format!("error: {error}\n"),
        }
    }

    fn register(&mut self, args: &Args<'_>) -> String {
        let mut features: BTreeMap<Arc<str>, (i16, i16)> = features::supported_features()
            .into_iter()
            .map(|(name, min, max)| (Arc::from(name), (min, max)))
            .collect();
        if let Some(max) = args.int("metadata.version") {
            features.insert(Arc::from(features::METADATA_VERSION), (7, max as i16));
        }
        let id = args.node();
        let previous = args.int("previous").map_or(BrokerEpoch::UNKNOWN, BrokerEpoch);
        let registration = Registration {
            id,
            incarnation: Uuid::from_u128(args.int("incarnation").unwrap_or(1) as u128),
            endpoints: vec![Endpoint {
                listener: "PLAINTEXT".into(),
                host: "localhost".into(),
                port: 9092,
                security_protocol: 0,
            }],
            features,
            rack: args.get("rack").map(Arc::from),
            directories: match args.get("dirs") {
                Some(_) => args.ids("dirs"),
                None => vec![Uuid::from_u128(1000 + id.0 as u128)],
            },
            previous_epoch: if args.flag("clean") { self.epoch(id) } else { previous },
        };
        let decision =
            brokers::register(&self.cluster.image, &registration, args.flag("alive"), self.defaults);
        let text = self.commit(decision);
        // The features of a registration are long and the same each time.
        let brief = |line: &str| match line.split_once("\"features\":") {
            Some((before, after)) => {
                let rest = after.split_once(']').map_or("", |(_, rest)| rest);
                format!("{before}\"features\":..{rest}\n")
            }
            None => format!("{line}\n"),
        };
        text.lines().map(brief).collect()
    }

    fn heartbeat(&mut self, args: &Args<'_>) -> String {
        let applied = self.cluster.image.version.offset().plus(-1);
        let heartbeat = Heartbeat {
            id: args.node(),
            epoch: args.int("epoch").map_or_else(|| self.epoch(args.node()), BrokerEpoch),
            metadata_offset: args.int("offset").map_or(applied, Offset),
            want_fence: args.flag("fence"),
            want_shutdown: args.flag("shutdown"),
            offline_directories: args.ids("offline"),
            cordoned_directories: args.get("cordoned").map(|_| args.ids("cordoned")),
        };
        let known = Known { others_caught_up: !args.flag("others-behind"), insists: args.flag("insists") };
        let decision = brokers::heartbeat(&self.cluster.image, &heartbeat, known, self.defaults);
        self.commit(decision)
    }

    /// `place BROKER TOPIC-ID INDEX dir=ID`
    fn place(&mut self, args: &Args<'_>) -> String {
        let topic_id = Uuid::from_u128(args.names[1].parse().expect("a topic id"));
        let partition = PartitionIndex(args.names[2].parse().expect("an index"));
        let at = TopicIdPartition { topic_id, partition };
        let epoch = args.int("epoch").map_or_else(|| self.epoch(args.node()), BrokerEpoch);
        let assignments = [(at, args.ids("dir")[0])];
        let decision =
            topics::assign_directories(&self.cluster.image, args.node(), epoch, &assignments, self.defaults);
        self.commit(decision)
    }

    /// `give-up BROKER TOPIC-ID INDEX`
    fn give_up(&mut self, args: &Args<'_>) -> String {
        let topic_id = Uuid::from_u128(args.names[1].parse().expect("a topic id"));
        let partition = PartitionIndex(args.names[2].parse().expect("an index"));
        let damaged = [TopicIdPartition { topic_id, partition }];
        let epoch = args.int("epoch").map_or_else(|| self.epoch(args.node()), BrokerEpoch);
        let decision =
            topics::give_up_replicas(&self.cluster.image, args.node(), epoch, &damaged, self.defaults);
        self.commit(decision)
    }

    /// `create NAME.. partitions=N rf=N assign=0:1,2/1:2,1 config.KEY=VALUE`; a name may come twice.
    fn create(&mut self, args: &Args<'_>) -> String {
        let assignments: Vec<(PartitionIndex, Vec<NodeId>)> = args
            .get("assign")
            .into_iter()
            .flat_map(|list| list.split('/'))
            .filter_map(|assignment| assignment.split_once(':'))
            .map(|(index, replicas)| (PartitionIndex(index.parse().expect("an index")), nodes(replicas)))
            .collect();
        let configs: Vec<(Arc<str>, Option<Arc<str>>)> = args
            .pairs
            .iter()
            .filter_map(|(key, value)| Some((key.strip_prefix("config.")?, *value)))
            .map(|(key, value)| (Arc::from(key), (value != "null").then(|| Arc::from(value))))
            .collect();
        let names = args.names.iter().filter(|name| **name != "validate");
        let topics: Vec<NewTopic> = names
            .map(|name| {
                self.topics += 1;
                NewTopic {
                    name: Arc::from(name.replace("EMPTY", "")),
                    id: Uuid::from_u128(self.topics),
                    partitions: args.int("partitions").map(|count| count as i32),
                    replication_factor: args.int("rf").map(|factor| factor as i16),
                    assignments: assignments.clone(),
                    configs: configs.clone(),
                }
            })
            .collect();
        let options = CreateTopicsOptions {
            default_partitions: 1,
            default_replication_factor: 1,
            validate_only: args.flag("validate"),
            seed: args.int("seed").unwrap_or(0) as u64,
        };
        let decision = topics::create_topics(&self.cluster.image, &topics, options, &rules());
        match decision.reply {
            Ok(outcomes) => self.commit_each(Decision::new(decision.records, outcomes)),
            Err(error) => format!("error: {error}\n"),
        }
    }

    fn delete(&mut self, args: &Args<'_>) -> String {
        let reference = |name: &&str| match name.strip_prefix('#') {
            Some(id) => TopicRef::Id(Uuid::from_u128(id.parse().expect("an id"))),
            None => TopicRef::Name(Arc::from(*name)),
        };
        let topics: Vec<TopicRef> = args.names.iter().map(reference).collect();
        let decision = topics::delete_topics(&self.cluster.image, &topics);
        self.commit_each(decision.map(|outcomes| {
            outcomes.into_iter().map(|(topic, outcome)| (format!("{topic:?}"), outcome)).collect()
        }))
    }

    fn grow(&mut self, args: &Args<'_>) -> String {
        let names = args.names.iter().filter(|name| **name != "validate");
        let topics: Vec<MorePartitions> = names
            .map(|name| MorePartitions {
                topic: Arc::from(*name),
                count: args.int("to").unwrap_or(0) as i32,
                assignments: args.get("assign").map(|list| list.split('/').map(nodes).collect()),
            })
            .collect();
        let validate_only = args.flag("validate");
        let decision = topics::create_partitions(&self.cluster.image, &topics, validate_only, 0);
        match decision.reply {
            Ok(outcomes) => self.commit_each(Decision::new(decision.records, outcomes)),
            Err(error) => format!("error: {error}\n"),
        }
    }

    /// `alter KIND:NAME KEY=OP:VALUE`, OP being set, del, add or sub.
    fn alter(&mut self, args: &Args<'_>) -> String {
        let op = |text: &str| match text.split_once(':') {
            Some(("set", value)) => ConfigOp::Set(value.into()),
            Some(("add", value)) => ConfigOp::Append(value.into()),
            Some(("sub", value)) => ConfigOp::Subtract(value.into()),
            _ => ConfigOp::Delete,
        };
        let ops: Vec<_> = args.pairs.iter().map(|(key, text)| (Arc::from(*key), op(text))).collect();
        let names = args.names.iter().filter(|name| **name != "validate");
        let resources: Vec<_> = names.map(|name| (resource(name), ops.clone())).collect();
        let image = &self.cluster.image;
        let decision = configs::incremental_alter_configs(image, &resources, args.flag("validate"), &rules());
        self.commit_each(decision.map(named))
    }

    fn replace(&mut self, args: &Args<'_>) -> String {
        let values: Vec<_> =
            args.pairs.iter().map(|(key, value)| (Arc::from(*key), Some(Arc::from(*value)))).collect();
        let resources: Vec<_> = args.names.iter().map(|name| (resource(name), values.clone())).collect();
        let decision = configs::alter_configs(&self.cluster.image, &resources, false, &rules());
        self.commit_each(decision.map(named))
    }

    /// `features NAME=LEVEL.. [safe|unsafe|unknown] [validate] [dynamic]`: the last when kraft.version is 1.
    fn features(&mut self, args: &Args<'_>) -> String {
        let upgrade_type = match () {
            () if args.flag("safe") => UpgradeType::SafeDowngrade,
            () if args.flag("unsafe") => UpgradeType::UnsafeDowngrade,
            () if args.flag("unknown") => UpgradeType::Unknown,
            () => UpgradeType::Upgrade,
        };
        let updates: Vec<FeatureUpdate> = args
            .pairs
            .iter()
            .map(|(name, level)| FeatureUpdate {
                name: Arc::from(*name),
                level: level.parse().expect("a level"),
                upgrade_type,
            })
            .collect();
        let image = &self.cluster.image;
        let kraft_version = i16::from(args.flag("dynamic"));
        let node = features::DecidingNode { id: NodeId(1), kraft_version, min_insync_replicas: 1 };
        let decision = features::update_features(image, node, &updates, args.flag("validate"));
        self.commit(decision)
    }
}

fn outcome<R: Debug, E: Display>(reply: &Result<R, E>) -> String {
    match reply {
        Ok(reply) => format!("ok {reply:?}"),
        Err(error) => format!("error: {error}"),
    }
}

fn resource(text: &str) -> ConfigResource {
    let (kind, name) = text.split_once(':').expect("KIND:NAME");
    let kind = match kind {
        "topic" => ResourceType::Topic,
        "broker" => ResourceType::Broker,
        "group" => ResourceType::Group,
        "client-metrics" => ResourceType::ClientMetrics,
        _ => panic!("{kind}: no such kind of resource"),
    };
    ConfigResource::new(kind, name)
}

fn named<R>(outcomes: Vec<(ConfigResource, R)>) -> Vec<(String, R)> {
    let name = |resource: &ConfigResource| format!("{:?}:{}", resource.kind, resource.name);
    outcomes.into_iter().map(|(resource, outcome)| (name(&resource), outcome)).collect()
}

#[test]
fn scripts_hold() {
    check_scripts("tests/metadata/scripts", || {
        let mut script = Script::default();
        move |line: &str| script.run(line)
    });
}
