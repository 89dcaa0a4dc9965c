//! A partition some of whose records on disk are not what was written. They are had from another replica, and written where they
//! were (`mending`). Where nobody has what fits, the replica is given up when two others are in sync, and has its records from
//! the leader again; else it stays as it is, and only what is damaged is not served.
//!
//! Must not know the metadata. Invariant: the log is cut in a term of the leader in which nothing was fetched before, since a
//! leader believes the farthest that a follower has told in its term; and only while the metadata has this replica in no
//! in-sync set, for what is committed may be cut off.

use super::hosted::{Desk, Hosted, HostedRole};
use super::partitions::{Leadership, Role};
use super::repairs::Repair;
use crate::replica::Term;
use crate::storage::log::{Damage, LogError, Patch, Unfit};
use crate::types::{LeaderEpoch, NodeId, Offset};

/// How far a replica is on its way to being whole again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Rebuild {
    /// Nothing is wrong.
    #[default]
    None,
    /// It is to be cut as soon as there is somebody to fetch from.
    Due,
    /// It has been cut, or is whole, and lacks what is committed.
    Behind,
    /// It has what is committed, and the cluster is told.
    Complete,
}

impl Hosted {
    /// A reader has found damage.
    pub(super) fn note_damage(&mut self, damage: &Damage, desk: &mut Desk) {
        if self.log.note_damage(damage) {
            let name = &self.partition.name;
            tracing::error!(
                partition = %name,
                "{damage}. This batch is not served until it is had from another replica that is in sync"
            );
            desk.outbox.repair(Repair::Damaged(self.partition.id));
        }
    }

    /// Another replica has what is damaged here.
    pub(super) fn mend(&mut self, patch: &Patch, desk: &mut Desk) -> Result<(), Unfit> {
        let mended = self.log.mend(patch);
        if let Err(error) = &mended {
            self.note_failure(error, desk.now.monotonic);
        }
        self.dirty_since.get_or_insert(desk.now.monotonic);
        mended.unwrap_or(Err(Unfit::Gone))
    }

    /// Follows, while the cluster does without it: what is damaged and what follows it is to come from the leader.
    pub(super) fn rebuild(&mut self, term: Term, desk: &mut Desk) {
        let is_new_term = match &self.role {
            HostedRole::Following(following) => following.core.leader_epoch() < term.leader_epoch,
            HostedRole::Leading(_) | HostedRole::None => true,
        };
        let has_leader = term.leader != NodeId::NONE;
        let begins = match self.rebuild {
            Rebuild::None | Rebuild::Due => has_leader,
            // Damage was found since.
            Rebuild::Behind | Rebuild::Complete => has_leader && is_new_term && self.log.is_damaged(),
        };
        if begins {
            let is_whole = !self.log.is_damaged() && !self.log.is_suspect();
            let begun = if is_whole { self.keep_whole(desk) } else { self.begin_rebuild(term, desk) };
            if let Err(error) = begun {
                return self.note_failure(&error, desk.now.monotonic);
            }
        } else if self.rebuild == Rebuild::None {
            self.rebuild = Rebuild::Due;
        } else if self.rebuild == Rebuild::Complete && is_new_term {
            // Perhaps it was taken back and given up anew, and only what came of it was seen here. So it is told anew.
            self.rebuild = Rebuild::Behind;
        }
        self.follow(term, desk);
    }

    /// Nothing is wrong with it: its directory was away when the cluster gave it up, or it has been put right since. It lacks what came
    /// meanwhile, at most.
    fn keep_whole(&mut self, desk: &mut Desk) -> Result<(), LogError> {
        self.log.note_whole()?;
        self.rebuild = Rebuild::Behind;
        desk.outbox.repair(Repair::Begun(self.partition.id));
        Ok(())
    }

    fn begin_rebuild(&mut self, term: Term, desk: &mut Desk) -> Result<(), LogError> {
        // Who reads here meanwhile must hear that another leads.
        let (leader, leader_epoch) = (term.leader, term.leader_epoch);
        let role = Role::Follower;
        self.partition.set_leadership(Leadership { role, leader, leader_epoch, epoch_start: None });
        self.resign(desk);
        let was = self.log.log_end();
        self.log.drop_damaged(desk.now.wall)?;
        // Whoever copies has seen what is left of it from now on.
        self.partition.note_rebuild();
        let (name, end) = (&self.partition.name, self.log.log_end());
        tracing::warn!(
            partition = %name,
            "the damaged replica is rebuilt: it ended at {was}, and is fetched from offset {end} on again"
        );
        self.rebuild = Rebuild::Behind;
        // Whatever was to be told of it is of what it was before.
        desk.outbox.repair(Repair::Begun(self.partition.id));
        self.note_cut(end, desk);
        Ok(())
    }

    /// It leads, although the cluster had done without it: nobody else is left. What it has is what there is.
    pub(super) fn end_rebuild(&mut self, desk: &mut Desk) {
        if self.rebuild != Rebuild::None {
            tracing::warn!(
                partition = %self.partition.name,
                "the damaged replica leads, for no other is left, with what it has: up to offset {}",
                self.log.log_end()
            );
            self.tell_rebuilt(desk);
        }
    }

    fn tell_rebuilt(&self, desk: &mut Desk) {
        let id = self.partition.id;
        desk.outbox.repair(Repair::Rebuilt(id, self.partition.directory().id()));
        if self.log.is_damaged() {
            desk.outbox.repair(Repair::Damaged(id));
        }
    }

    /// The leader has answered a question of `epoch`, and `committed` is its high watermark.
    pub(super) fn note_rebuilt(&mut self, epoch: LeaderEpoch, committed: Offset, desk: &mut Desk) {
        let HostedRole::Following(following) = &self.role else { return };
        let is_current = following.core.leader_epoch() == epoch;
        if self.rebuild == Rebuild::Behind && is_current && self.log.log_end() >= committed {
            tracing::info!(partition = %self.partition.name, "the damaged replica is whole again");
            self.rebuild = Rebuild::Complete;
            self.tell_rebuilt(desk);
        }
    }
}
