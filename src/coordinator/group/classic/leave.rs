//! Signs of life, and goodbyes.

use super::super::command::Identity;
use super::super::{Name, Now, Out};
use super::{ClassicConfig, ClassicGroup, MemberError, Phase};

/// Why a heartbeat is not a member's, or what the member has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeartbeatError {
    #[error(transparent)]
    Member(#[from] MemberError),
    #[error("the group is at another generation")]
    IllegalGeneration,
    #[error("the group rebalances: join again")]
    RebalanceInProgress,
}

/// Who leaves: a member by its id, or, on behalf of an operator, a static one by its instance alone (empty id).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaving {
    pub member_id: Name,
    pub instance_id: Option<Name>,
}

impl ClassicGroup {
    pub fn heartbeat(&mut self, member: &Identity, now: Now) -> Result<(), HeartbeatError> {
        self.check_member(&member.member_id, member.instance_id.as_ref())?;
        if member.generation != Some(self.generation) {
            return Err(HeartbeatError::IllegalGeneration);
        }
        if let Some(member) = self.members.get_mut(&member.member_id) {
            member.heard(now.monotonic);
        }
        match self.phase {
            Phase::Preparing(_) => Err(HeartbeatError::RebalanceInProgress),
            Phase::Empty | Phase::Completing(_) | Phase::Stable(_) => Ok(()),
        }
    }

    /// Members leave; one result for each.
    pub fn leave(
        &mut self,
        leaving: &[Leaving],
        config: &ClassicConfig,
        now: Now,
        out: &mut Out,
    ) -> Vec<Result<(), MemberError>> {
        let results: Vec<_> = leaving.iter().map(|leaving| self.leave_one(leaving, out)).collect();
        if results.iter().any(Result::is_ok) && !matches!(self.phase, Phase::Empty) {
            self.rebalance_or_complete(config, now, out);
        }
        results
    }

    fn leave_one(&mut self, leaving: &Leaving, out: &mut Out) -> Result<(), MemberError> {
        let Leaving { member_id, instance_id } = leaving;
        let id = if member_id.is_empty() {
            let by_instance = instance_id.as_ref().and_then(|instance| self.instances.get(instance));
            by_instance.cloned().ok_or(MemberError::Unknown)?
        } else if self.pending.contains_key(member_id) {
            member_id.clone()
        } else {
            self.check_member(member_id, instance_id.as_ref())?;
            member_id.clone()
        };
        self.dismiss(&id, out);
        Ok(())
    }
}
