//! The commands on partitions: what leaders, tools and the controller itself want of them.

use super::{Args, Script, nodes};
use crate::metadata::alter_partition::{ProposedIsr, alter_partition};
use crate::metadata::balance::balance_leaders;
use crate::metadata::elect_leaders::{ElectionType, elect_leaders};
use crate::metadata::reassign::{Reassignment, ongoing_reassignments, reassign};
use crate::metadata::topics::{LeaderRecoveryState, PartitionRegistration};
use crate::metadata::unclean::{Leaderless, LogEnd, LogEnds, candidates_of, elect_unclean_leaders};
use crate::metadata::{Decision, reassign::OngoingReassignment};
use crate::types::{
    BrokerEpoch, LeaderEpoch, NodeId, Offset, PartitionEpoch, PartitionIndex, TopicIdPartition,
    TopicPartition, Uuid,
};
use std::collections::BTreeMap;
use std::fmt::{Debug, Display, Write as _};
use std::sync::Arc;

/// What came of each part of a request.
type Outcomes<N, R, E> = Vec<(N, Result<R, E>)>;

/// `TOPIC-INDEX`
fn partition(text: &str) -> TopicPartition {
    let (topic, index) = text.rsplit_once('-').expect("TOPIC-INDEX");
    TopicPartition::new(topic, index.parse().expect("an index"))
}

/// What replicas say of their logs, the same for each partition.
fn ends(args: &Args<'_>, partitions: impl Iterator<Item = TopicIdPartition>) -> LogEnds {
    let Some(text) = args.get("ends") else { return LogEnds::new() };
    let end = |text: &str| {
        let numbers: Vec<i64> = text.split(':').map(|number| number.parse().expect("a number")).collect();
        let [replica, epoch, offset] = numbers[..] else { panic!("REPLICA:EPOCH:OFFSET") };
        let end = LogEnd { epoch: LeaderEpoch(epoch as i32), offset: Offset(offset) };
        (NodeId(replica as i32), end)
    };
    let ends: BTreeMap<NodeId, LogEnd> = text.split(',').map(end).collect();
    partitions.map(|partition| (partition, ends.clone())).collect()
}

fn ids(ids: &[NodeId]) -> Vec<i32> {
    ids.iter().map(|id| id.0).collect()
}

impl Script {
    pub(super) fn run_on_partitions(&mut self, verb: &str, args: &Args<'_>) -> Option<String> {
        Some(match verb {
            "partition" => self.partition(args.names[0], args.names[1]),
            "isr" => self.isr(args),
            "elect" => self.elect(args),
            "reassign" => self.reassign(args),
            "reassigning" => self.reassigning(args),
            "balance" => {
                let tolerated = args.int("tolerated").unwrap_or(0) as u8;
                let limit = args.int("limit").unwrap_or(1000) as usize;
                self.commit_more(balance_leaders(&self.cluster.image, tolerated, limit, self.defaults))
            }
            "candidates" => {
                let due = self.leaderless().due(&self.cluster.image, self.defaults);
                format!("{:?}\n", due.iter().map(|due| ids(&due.replicas)).collect::<Vec<_>>())
            }
            "elect-unclean" => self.elect_unclean(args),
            _ => return None,
        })
    }

    fn commit_more(&mut self, decision: Decision<bool>) -> String {
        self.commit(decision.map(|more| Ok::<_, String>(if more { "there may be more" } else { "done" })))
    }

    /// What a decision on many partitions as a whole comes to.
    fn commit_all<N: Display, R: Debug, E: Display, F: Display>(
        &mut self,
        decision: Decision<Result<Outcomes<N, R, E>, F>>,
    ) -> String {
        match decision.reply {
            Ok(outcomes) => self.commit_each(Decision::new(decision.records, outcomes)),
            Err(error) => {
                assert_eq!(decision.records, []);
                format!("error: {error}\n")
            }
        }
    }

    fn registration(&self, at: &TopicPartition) -> Option<&PartitionRegistration> {
        self.cluster.image.topics.by_name(&at.topic)?.partition(at.partition)
    }

    /// `isr TOPIC-INDEX.. to=1,2/EPOCH,.. by=LEADER recovering`; by default by the leader of now, who knows everything.
    fn isr(&mut self, args: &Args<'_>) -> String {
        let names: Vec<&str> = args.names.iter().copied().filter(|name| *name != "recovering").collect();
        let leader = self.registration(&partition(names[0])).map(|partition| partition.leader);
        let by = args.get("by").map_or(leader, |by| nodes(by).first().copied()).expect("by=LEADER");
        let member = |text: &str| {
            let (id, epoch) = text.split_once('/').unwrap_or((text, "-1"));
            (nodes(id)[0], BrokerEpoch(epoch.parse().expect("an epoch")))
        };
        let isr = args.get("to").unwrap_or("").split(',').filter(|id| !id.is_empty()).map(member).collect();
        let proposal = |name: &str| {
            let at = partition(name);
            let existing = self.registration(&at);
            let topic = self.cluster.image.topics.by_name(&at.topic);
            let leader_epoch = existing.map_or(LeaderEpoch(0), |partition| partition.leader_epoch);
            let partition_epoch = existing.map_or(PartitionEpoch(0), |partition| partition.partition_epoch);
            ProposedIsr {
                partition: TopicIdPartition {
                    topic_id: topic.map_or(Uuid::from_u128(99), |topic| topic.id),
                    partition: at.partition,
                },
                leader_epoch: args.int("leader-epoch").map_or(leader_epoch, |e| LeaderEpoch(e as i32)),
                partition_epoch: args
                    .int("partition-epoch")
                    .map_or(partition_epoch, |e| PartitionEpoch(e as i32)),
                isr: Vec::clone(&isr),
                recovery_state: match args.flag("recovering") {
                    true => LeaderRecoveryState::Recovering,
                    false => LeaderRecoveryState::Recovered,
                },
            }
        };
        let proposals: Vec<ProposedIsr> = names.iter().map(|name| proposal(name)).collect();
        let epoch = args.int("broker-epoch").map_or_else(|| self.epoch(by), BrokerEpoch);
        let decision = alter_partition(&self.cluster.image, by, epoch, &proposals, self.defaults);
        let named = decision.map(|reply| {
            reply.map(|outcomes| {
                let brief = outcomes.into_iter().map(|(at, outcome)| {
                    let state = outcome.map(|after| {
                        let (epoch, isr) = (after.leader_epoch.0, ids(&after.isr));
                        (after.leader.0, epoch, isr, after.recovery_state, after.partition_epoch.0)
                    });
                    (format!("{}", at.partition), state)
                });
                brief.collect()
            })
        });
        self.commit_all(named)
    }

    fn leaderless(&self) -> Leaderless {
        let mut leaderless = Leaderless::default();
        leaderless.follow(&self.cluster.image);
        leaderless
    }

    /// `elect-unclean [ends=REPLICA:EPOCH:OFFSET,..]`: what the controller does by itself.
    fn elect_unclean(&mut self, args: &Args<'_>) -> String {
        let image = &self.cluster.image;
        let due = self.leaderless().due(image, self.defaults);
        let partitions: Vec<_> = due.iter().map(|due| due.partition).collect();
        let ends = ends(args, partitions.iter().copied());
        let decision = elect_unclean_leaders(image, partitions.into_iter(), &ends, self.defaults);
        self.commit(decision.map(|()| Ok::<_, String>("done")))
    }

    /// `elect preferred|unclean TOPIC-INDEX.. [ends=..]`; all without any.
    fn elect(&mut self, args: &Args<'_>) -> String {
        let election = match args.names[0] {
            "preferred" => ElectionType::Preferred,
            _ => ElectionType::Unclean,
        };
        let named: Vec<TopicPartition> = args.names[1..].iter().map(|name| partition(name)).collect();
        let partitions = (!named.is_empty()).then_some(&named[..]);
        let asked = candidates_of(&self.cluster.image, partitions, self.defaults);
        let ends = ends(args, asked.iter().map(|asked| asked.partition));
        let decision = elect_leaders(&self.cluster.image, election, partitions, &ends, self.defaults);
        self.commit_all(decision)
    }

    /// `reassign TOPIC-INDEX TO TOPIC-INDEX TO.. [same-factor]`, TO being replicas, `none` or `cancel`.
    fn reassign(&mut self, args: &Args<'_>) -> String {
        let words: Vec<&str> = args.names.iter().copied().filter(|name| *name != "same-factor").collect();
        let reassignments: Vec<Reassignment> = words
            .chunks(2)
            .map(|pair| Reassignment {
                partition: partition(pair[0]),
                replicas: match pair[1] {
                    "cancel" => None,
                    "none" => Some(Vec::new()),
                    replicas => Some(nodes(replicas)),
                },
            })
            .collect();
        let any_factor = !args.flag("same-factor");
        self.commit_all(reassign(&self.cluster.image, &reassignments, any_factor, self.defaults))
    }

    /// `reassigning TOPIC-INDEX..`; all without any.
    fn reassigning(&self, args: &Args<'_>) -> String {
        let one = |name: &&str| {
            let TopicPartition { topic, partition } = partition(name);
            (topic, vec![partition])
        };
        let named: Vec<(Arc<str>, Vec<PartitionIndex>)> = args.names.iter().map(one).collect();
        let of = (!named.is_empty()).then_some(&named[..]);
        let ongoing = ongoing_reassignments(&self.cluster.image, of);
        let line = |OngoingReassignment { partition, replicas, adding, removing }: &OngoingReassignment| {
            let [replicas, adding, removing] = [replicas, adding, removing].map(|list| ids(list));
            format!("{partition}: replicas {replicas:?} adding {adding:?} removing {removing:?}\n")
        };
        if ongoing.is_empty() { "none\n".into() } else { ongoing.iter().map(line).collect() }
    }

    fn partition(&self, topic: &str, index: &str) -> String {
        let Some(partition) = self.registration(&partition(&format!("{topic}-{index}"))) else {
            return "no such partition\n".into();
        };
        let mut text = format!(
            "leader {} epoch {} partition epoch {} replicas {:?} isr {:?} elr {:?} last known {:?} {:?}",
            partition.leader,
            partition.leader_epoch,
            partition.partition_epoch,
            ids(&partition.replicas),
            ids(&partition.isr),
            ids(&partition.elr),
            ids(&partition.last_known_elr),
            partition.leader_recovery_state
        );
        if partition.lossy_epoch != LeaderEpoch::UNKNOWN {
            let _ = write!(text, " since epoch {}", partition.lossy_epoch);
        }
        if partition.is_reassigning() {
            let (adding, removing) = (ids(&partition.adding), ids(&partition.removing));
            let _ = write!(text, " adding {adding:?} removing {removing:?}");
        }
        text + "\n"
    }
}
