//! Which members may commit offsets, and read what was committed, in which epoch.

use super::ConsumerGroup;
use super::member::Member;
use crate::types::{PartitionIndex, TopicId};

/// Why a request with a member's id and epoch is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    #[error("the group does not know the member")]
    UnknownMember,
    #[error("the member is in another epoch")]
    StaleMemberEpoch,
    #[error("the member, of the classic protocol, is at another generation")]
    IllegalGeneration,
    #[error("members of the consumer protocol commit by OffsetCommit 9 or later")]
    UnsupportedVersion,
}

/// Which partitions a member may commit.
#[derive(Clone, Copy, Debug)]
pub enum CommitCheck<'a> {
    Everything,
    /// It comes with an epoch that has passed: what it has had since then, and has not given up.
    Since(MemberInEpoch<'a>),
}

#[derive(Clone, Copy, Debug)]
pub struct MemberInEpoch<'a> {
    member: &'a Member,
    epoch: i32,
}

impl CommitCheck<'_> {
    /// Whether an offset of this partition may be committed. A commit that names the topic alone needs the id that the
    /// topic has now.
    pub fn check(&self, topic: TopicId, partition: PartitionIndex) -> Result<(), CommitError> {
        let CommitCheck::Since(MemberInEpoch { member, epoch }) = self else { return Ok(()) };
        match member.epoch_of(topic, partition) {
            Some(since) if *epoch >= since => Ok(()),
            _ => Err(stale(member)),
        }
    }
}

impl ConsumerGroup {
    /// OffsetCommit, or TxnOffsetCommit when `is_transactional`. `is_old_version`: OffsetCommit before version 9.
    pub fn check_commit(
        &self,
        member_id: &str,
        instance_id: Option<&str>,
        epoch: i32,
        is_transactional: bool,
        is_old_version: bool,
    ) -> Result<CommitCheck<'_>, CommitError> {
        // From an operator, or from a consumer that is no member.
        if epoch < 0 && self.members.is_empty() {
            return Ok(CommitCheck::Everything);
        }
        // Producers need not say for whom they commit.
        if is_transactional && epoch == -1 && member_id.is_empty() && instance_id.is_none() {
            return Ok(CommitCheck::Everything);
        }
        let member = self.members.get(member_id).ok_or(CommitError::UnknownMember)?;
        if !is_transactional && is_old_version && !member.is_classic() {
            return Err(CommitError::UnsupportedVersion);
        }
        match epoch.cmp(&member.epoch) {
            std::cmp::Ordering::Equal => Ok(CommitCheck::Everything),
            std::cmp::Ordering::Less => Ok(CommitCheck::Since(MemberInEpoch { member, epoch })),
            std::cmp::Ordering::Greater => Err(stale(member)),
        }
    }

    /// OffsetFetch. Operators name no member.
    pub fn check_fetch(&self, member_id: Option<&str>, epoch: i32) -> Result<(), CommitError> {
        let Some(member_id) = member_id else {
            return if epoch < 0 { Ok(()) } else { Err(CommitError::UnknownMember) };
        };
        let member = self.members.get(member_id).ok_or(CommitError::UnknownMember)?;
        if epoch == member.epoch { Ok(()) } else { Err(stale(member)) }
    }
}

/// The same in the words of the member's protocol.
fn stale(member: &Member) -> CommitError {
    if member.is_classic() { CommitError::IllegalGeneration } else { CommitError::StaleMemberEpoch }
}
