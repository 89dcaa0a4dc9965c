//! What can be asked of a coordinator of groups: the requests in typed form, without what only the protocol's versions
//! know. Who asks has checked what needs no group: that ids are not empty, that time-outs are within their bounds, that
//! topics exist.

use super::classic::{Join, Leaving, Sync};
use super::producers::Ended;
use super::{Name, Producer, Settings, consumer};
use crate::types::{LeaderEpoch, Offset, PartitionIndex, ProducerId, TopicId};

/// A command; the reply to it is the variant of [`Reply`](super::Reply) of the same name.
#[derive(Clone, Debug)]
pub enum Command {
    /// The settings are these from now on.
    Configure(Settings),
    Join {
        group: Name,
        join: Box<Join>,
    },
    Sync {
        group: Name,
        sync: Sync,
    },
    Heartbeat {
        group: Name,
        member: Identity,
    },
    Leave {
        group: Name,
        leaving: Vec<Leaving>,
    },
    /// ConsumerGroupHeartbeat.
    ConsumerHeartbeat {
        group: Name,
        heartbeat: Box<consumer::Heartbeat>,
    },
    CommitOffsets(CommitOffsets),
    /// The offsets count once the producer's transaction is committed. `commit.retention_ms` has no meaning.
    CommitOffsetsInTransaction {
        producer: Producer,
        /// What `CountEnds` said before the transaction's coordinator was asked: if a transaction has ended since, the offsets
        /// come too late.
        since: Option<Ended>,
        commit: CommitOffsets,
    },
    /// How many transactions of a producer have ended.
    CountEnds(ProducerId),
    FetchOffsets(FetchOffsets),
    DeleteOffsets {
        group: Name,
        topics: Vec<(Name, Vec<PartitionIndex>)>,
    },
    ListGroups(Filter),
    /// Groups of the classic protocol.
    DescribeGroups(Vec<Name>),
    /// ConsumerGroupDescribe.
    DescribeConsumerGroups(Vec<Name>),
    DeleteGroups(Vec<Name>),
}

/// Who a member says that it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub member_id: Name,
    /// `group.instance.id` of a static member (KIP-345).
    pub instance_id: Option<Name>,
    /// The generation, or the epoch of a member of a consumer group; none (Kafka's -1) from who is no member.
    pub generation: Option<i32>,
}

impl Identity {
    /// An operator, or a consumer that assigns to itself.
    pub fn nobody() -> Identity {
        Identity { member_id: "".into(), instance_id: None, generation: None }
    }

    pub(super) fn is_nobody(&self) -> bool {
        self.member_id.is_empty() && self.instance_id.is_none() && self.generation.is_none()
    }
}

/// Offsets to store.
#[derive(Clone, Debug)]
pub struct CommitOffsets {
    pub group: Name,
    pub member: Identity,
    /// The client's protocol knows of member epochs (OffsetCommit from version 9 on, KIP-848).
    pub knows_epochs: bool,
    /// How long the offsets are to be kept, where the client says so (OffsetCommit 2 to 4).
    pub retention_ms: Option<i64>,
    pub topics: Vec<CommitTopic>,
}

#[derive(Clone, Debug)]
pub struct CommitTopic {
    pub name: Name,
    /// Nil when the client named the topic alone.
    pub id: TopicId,
    pub partitions: Vec<CommitPartition>,
}

#[derive(Clone, Debug)]
pub struct CommitPartition {
    pub index: PartitionIndex,
    pub offset: Offset,
    pub leader_epoch: LeaderEpoch,
    pub metadata: Box<str>,
}

/// Offsets to look up.
#[derive(Clone, Debug)]
pub struct FetchOffsets {
    pub group: Name,
    /// The member that asks, if it says so (OffsetFetch from version 9 on): id and epoch.
    pub member: Option<(Name, i32)>,
    /// None for all that the group has.
    pub topics: Option<Vec<FetchTopic>>,
    /// Whether an offset that an open transaction may change is to be held back (KIP-447).
    pub require_stable: bool,
}

#[derive(Clone, Debug)]
pub struct FetchTopic {
    pub name: Name,
    /// Nil when the client named the topic alone.
    pub id: TopicId,
    pub partitions: Vec<PartitionIndex>,
}

/// Which groups to list; an empty filter lets all pass. Case does not matter, and what is no state or type matches none.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub states: Vec<String>,
    pub types: Vec<String>,
}
