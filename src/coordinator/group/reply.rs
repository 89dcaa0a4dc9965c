//! What a coordinator of groups answers, and why it refuses. Each operation has an error of its own; the protocol's codes
//! are chosen by who asks.

use super::Name;
use super::classic::{self, ClassicDescription};
use super::consumer;
use super::producers::Ended;
use crate::types::{LeaderEpoch, Offset, PartitionIndex, TopicId};

/// The reply to the command of the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Configured,
    Join(Result<classic::Joined, classic::JoinRefused>),
    Sync(Result<classic::Synced, classic::SyncError>),
    Heartbeat(Result<(), classic::HeartbeatError>),
    /// One for each who was to leave, in the order of the command.
    Leave(Vec<Result<(), classic::MemberError>>),
    ConsumerHeartbeat(Result<consumer::HeartbeatReply, ConsumerHeartbeatError>),
    CommitOffsets(Result<Vec<CommittedTopic>, CommitError>),
    CommitOffsetsInTransaction(Result<Vec<CommittedTopic>, CommitError>),
    CountEnds(Ended),
    FetchOffsets(Result<Vec<FetchedTopic>, FetchError>),
    DeleteOffsets(Result<Vec<OffsetsDeleted>, DeleteOffsetsError>),
    ListGroups(Vec<ListedGroup>),
    /// One for each group that was asked for, in the order of the command.
    DescribeGroups(Vec<(Name, Result<ClassicDescription, DescribeError>)>),
    /// One for each group that was asked for, in the order of the command.
    DescribeConsumerGroups(Vec<(Name, Result<consumer::Described, DescribeError>)>),
    /// One for each group that was asked for, in the order of the command.
    DeleteGroups(Vec<(Name, Result<(), DeleteGroupError>)>),
}

/// Why a heartbeat of the consumer protocol is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConsumerHeartbeatError {
    #[error("there is no such group")]
    GroupNotFound,
    #[error("the group is of another type")]
    OtherType,
    /// A classic group with members cannot become a consumer group.
    #[error("the group is of the classic protocol: {0}")]
    NotUpgraded(#[from] consumer::UpgradeRefused),
    #[error(transparent)]
    Refused(#[from] consumer::HeartbeatError),
}

/// What a commit came to, as it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedTopic {
    pub name: Name,
    pub id: TopicId,
    pub partitions: Vec<(PartitionIndex, Result<(), MetadataTooLarge>)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the text to be stored with the offset is longer than is allowed")]
pub struct MetadataTooLarge;

/// Why none of the offsets is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    #[error("there is no such group")]
    GroupNotFound,
    #[error("the group does not know the member")]
    UnknownMember,
    #[error("another member has taken over the group instance id")]
    FencedInstance,
    #[error("the group is at another generation")]
    IllegalGeneration,
    #[error("the member is at another epoch")]
    StaleMemberEpoch,
    #[error("the group rebalances: join again")]
    RebalanceInProgress,
    #[error("a member of a consumer group has to use a version that knows of epochs")]
    VersionWithoutEpochs,
    #[error("a producer with a newer epoch has taken over")]
    ProducerFenced,
    #[error("the transaction has ended meanwhile")]
    TransactionEnded,
}

impl From<classic::MemberError> for CommitError {
    fn from(error: classic::MemberError) -> CommitError {
        match error {
            classic::MemberError::Unknown => CommitError::UnknownMember,
            classic::MemberError::FencedInstance => CommitError::FencedInstance,
        }
    }
}

impl From<consumer::CommitError> for CommitError {
    fn from(error: consumer::CommitError) -> CommitError {
        match error {
            consumer::CommitError::UnknownMember => CommitError::UnknownMember,
            consumer::CommitError::StaleMemberEpoch => CommitError::StaleMemberEpoch,
            consumer::CommitError::IllegalGeneration => CommitError::IllegalGeneration,
            consumer::CommitError::UnsupportedVersion => CommitError::VersionWithoutEpochs,
        }
    }
}

/// The offsets of a topic, in the order in which they were asked for; all of them by name and partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedTopic {
    pub name: Name,
    /// As it was asked for; nil when all were.
    pub id: TopicId,
    pub partitions: Vec<(PartitionIndex, FetchedOffset)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchedOffset {
    /// The group has committed none.
    None,
    /// A transaction is open that may change it.
    Unstable,
    Offset {
        offset: Offset,
        leader_epoch: LeaderEpoch,
        metadata: Box<str>,
    },
}

/// Why a member is not told the offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    #[error("the group does not know the member")]
    UnknownMember,
    #[error("the member is at another epoch")]
    StaleMemberEpoch,
    #[error("the group is at another generation")]
    IllegalGeneration,
}

impl From<consumer::CommitError> for FetchError {
    fn from(error: consumer::CommitError) -> FetchError {
        match error {
            consumer::CommitError::UnknownMember => FetchError::UnknownMember,
            consumer::CommitError::IllegalGeneration => FetchError::IllegalGeneration,
            // OffsetFetch asks for no version.
            consumer::CommitError::StaleMemberEpoch | consumer::CommitError::UnsupportedVersion => {
                FetchError::StaleMemberEpoch
            }
        }
    }
}

/// The offsets of a topic are gone, unless members of the group read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetsDeleted {
    pub topic: Name,
    pub partitions: Vec<PartitionIndex>,
    pub result: Result<(), SubscribedToTopic>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("members of the group are subscribed to the topic")]
pub struct SubscribedToTopic;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeleteOffsetsError {
    #[error("there is no such group")]
    GroupNotFound,
    #[error("the group has members, and what they read is not known")]
    NonEmptyGroup,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedGroup {
    pub id: Name,
    /// Empty for a group that no member has ever joined.
    pub protocol_type: Name,
    pub state: &'static str,
    pub kind: GroupType,
}

/// What protocol a group speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupType {
    Classic,
    Consumer,
}

impl GroupType {
    /// Kafka's name for it.
    pub fn name(self) -> &'static str {
        match self {
            GroupType::Classic => "classic",
            GroupType::Consumer => "consumer",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DescribeError {
    #[error("there is no such group")]
    GroupNotFound,
    #[error("the group is of another type")]
    OtherType,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeleteGroupError {
    #[error("there is no such group")]
    GroupNotFound,
    #[error("the group has members")]
    NonEmptyGroup,
}
