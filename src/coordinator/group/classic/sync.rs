//! Synchronising: the leader's assignment becomes the group's, and everybody is told its own.

use bytes::Bytes;

use super::super::{Asked, Name, Now, Out, Reply};
use super::{ClassicConfig, ClassicGroup, MemberError, Phase, Sync, SyncError, Synced};
use crate::coordinator::Encode;

impl ClassicGroup {
    /// A member asks for its assignment.
    pub fn sync(&mut self, sync: Asked<Sync>, config: &ClassicConfig, now: Now, out: &mut Out) {
        if let Err(error) = self.check_sync(&sync) {
            return out.reply(sync.token, Reply::Sync(Err(error)));
        }
        let is_leader = self.is_leader(&sync.member_id);
        match &mut self.phase {
            // Its members are none, so the check has refused the request.
            Phase::Empty => out.reply(sync.token, Reply::Sync(Err(SyncError::UnknownMember))),
            Phase::Preparing(_) => {
                out.reply(sync.token, Reply::Sync(Err(SyncError::RebalanceInProgress)));
            }
            Phase::Completing(syncing) => {
                syncing.received(&sync.member_id);
                if let Some(member) = self.members.get_mut(&sync.member_id)
                    && let Some(superseded) = member.syncing.replace(sync.token)
                {
                    out.reply(superseded, Reply::Sync(Err(SyncError::RebalanceInProgress)));
                }
                if is_leader {
                    self.assign(sync.request.assignments, config, now, out);
                }
            }
            Phase::Stable(syncing) => {
                syncing.received(&sync.member_id);
                let assignment = self.members.get(&sync.member_id).map(|member| member.assignment.clone());
                let synced = self.synced(assignment.unwrap_or_default());
                out.reply(sync.token, Reply::Sync(Ok(synced)));
            }
        }
    }

    fn check_sync(&self, sync: &Sync) -> Result<(), SyncError> {
        self.check_member(&sync.member_id, sync.instance_id.as_ref())?;
        // Who does not name its protocol, as older clients, and a group that has not chosen any, are taken to agree.
        let differs =
            |asked: &Option<Name>, ours: &Option<Name>| matches!((asked, ours), (Some(a), Some(b)) if a != b);
        if sync.generation != self.generation {
            Err(SyncError::IllegalGeneration)
        } else if differs(&sync.protocol_type, &self.protocol_type) || differs(&sync.protocol, &self.protocol)
        {
            Err(SyncError::InconsistentProtocol)
        } else {
            Ok(())
        }
    }

    /// The group is stable with these assignments; who is not among them has none.
    fn assign(&mut self, assignments: Vec<(Name, Bytes)>, config: &ClassicConfig, now: Now, out: &mut Out) {
        for member in self.members.values_mut() {
            member.assignment.clear();
        }
        for (id, assignment) in assignments {
            if let Some(member) = self.members.get_mut(&id) {
                member.assignment = assignment;
            }
        }
        if self.record().exceeds(config.record_max) {
            return self.take_back_assignment(config, now, out);
        }
        let Phase::Completing(syncing) = &mut self.phase else { return };
        let syncing = std::mem::take(syncing);
        self.enter(Phase::Stable(syncing), now.wall);
        out.record(self.record());
        let (protocol_type, protocol) = (self.protocol_type.clone(), self.protocol.clone());
        for member in self.members.values_mut().filter(|member| member.syncing.is_some()) {
            let (protocol_type, protocol) = (protocol_type.clone(), protocol.clone());
            let synced = Synced { protocol_type, protocol, assignment: member.assignment.clone() };
            member.reply_sync(Ok(synced), out);
            member.heard(now.monotonic);
        }
    }

    /// What the leader has brought cannot be written down: nobody is assigned anything, and all join anew.
    fn take_back_assignment(&mut self, config: &ClassicConfig, now: Now, out: &mut Out) {
        for member in self.members.values_mut() {
            member.assignment.clear();
            if member.syncing.is_some() {
                member.heard(now.monotonic);
            }
            member.reply_sync(Err(SyncError::TooLarge), out);
        }
        self.prepare_rebalance(config, now, out);
    }

    fn synced(&self, assignment: Bytes) -> Synced {
        Synced { protocol_type: self.protocol_type.clone(), protocol: self.protocol.clone(), assignment }
    }
}

impl From<MemberError> for SyncError {
    fn from(error: MemberError) -> SyncError {
        match error {
            MemberError::Unknown => SyncError::UnknownMember,
            MemberError::FencedInstance => SyncError::FencedInstance,
        }
    }
}
