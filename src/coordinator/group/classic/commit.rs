//! What offsets have to do with the group: who may commit, when they expire, whether they may be deleted.

use super::super::Now;
use super::super::command::Identity;
use super::super::offsets::Expiry;
use super::super::reply::{CommitError, DeleteGroupError, DeleteOffsetsError};
use super::{ClassicGroup, Phase};
use crate::types::TimestampMs;

impl ClassicGroup {
    /// Whether offsets may be committed by who says that it is this member.
    pub fn check_commit(&self, member: &Identity, in_transaction: bool) -> Result<(), CommitError> {
        let is_empty = matches!(self.phase, Phase::Empty);
        if is_empty && member.generation.is_none() {
            // An operator, or a consumer that assigns to itself.
            return Ok(());
        }
        if !member.is_nobody() {
            self.check_member(&member.member_id, member.instance_id.as_ref())?;
            if member.generation != Some(self.generation) {
                return Err(CommitError::IllegalGeneration);
            }
        } else if !in_transaction {
            return Err(CommitError::UnknownMember);
        }
        // The member knows its new generation, and has to come for its assignment. Producers need not say who they
        // are, so their commits pass.
        if !in_transaction && matches!(self.phase, Phase::Completing(_)) {
            return Err(CommitError::RebalanceInProgress);
        }
        Ok(())
    }

    /// A member has committed offsets, which is a sign of life.
    pub fn committed(&mut self, member: &str, now: Now) {
        if matches!(self.phase, Phase::Stable(_) | Phase::Preparing(_))
            && let Some(member) = self.members.get_mut(member)
        {
            member.heard(now.monotonic);
        }
    }

    /// By what time the group's offsets expire.
    pub fn expiry(&self) -> Expiry {
        match (&self.protocol_type, &self.phase) {
            (None, _) => Expiry::SinceCommit,
            // The first versions of the record do not say since when.
            (Some(_), Phase::Empty) if self.since == TimestampMs::NONE => Expiry::SinceCommit,
            (Some(_), Phase::Empty) => Expiry::SinceEmpty(self.since),
            (Some(_), Phase::Stable(_)) if self.uses_consumer_protocol() && self.subscribed.is_some() => {
                Expiry::SinceCommit
            }
            (Some(_), _) => Expiry::Never,
        }
    }

    /// Whether single offsets may be deleted; of consumers it is known what they read, so they need not be away.
    pub fn check_delete_offsets(&self) -> Result<(), DeleteOffsetsError> {
        if matches!(self.phase, Phase::Empty) || self.uses_consumer_protocol() {
            Ok(())
        } else {
            Err(DeleteOffsetsError::NonEmptyGroup)
        }
    }

    pub fn check_delete(&self) -> Result<(), DeleteGroupError> {
        if matches!(self.phase, Phase::Empty) { Ok(()) } else { Err(DeleteGroupError::NonEmptyGroup) }
    }

    /// Whether nothing but its offsets keeps the group: nobody is in it, and nobody has been given an id.
    pub fn is_abandoned(&self) -> bool {
        matches!(self.phase, Phase::Empty) && self.pending.is_empty()
    }
}
