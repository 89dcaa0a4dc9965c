//! Changes of the set of voters (KIP-853), and which of them may be made.
//!
//! Pure: knows neither Raft nor time. Invariant: a change that is allowed leaves a set of which a majority is reached, so
//! that no change by itself ends the quorum.

use std::collections::{BTreeMap, BTreeSet};

use crate::controller::raft_types::Member;
use crate::types::{DirectoryId, NodeId, kafka_uuid};

/// What is to become of the voters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VoterChange {
    Add {
        node: NodeId,
        member: Member,
    },
    /// Takes a voter out; it is named with its directory, so that one that has come back without its disk is not taken
    /// for the one that was.
    Remove {
        node: NodeId,
        directory: DirectoryId,
    },
    /// A voter listens somewhere else.
    Update {
        node: NodeId,
        member: Member,
    },
}

/// Why the voters stay as they are.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeRefused {
    #[error("the request names no voter: a node id from 0 on and the id of its directory are needed")]
    NoVoter,
    #[error("the request has no address for listener {0}, where controllers are reached")]
    NoListener(String),
    #[error("the voters are those of controller.quorum.voters (kraft.version is 0) and cannot be changed")]
    Static,
    #[error("another change of the voters is under way")]
    Pending,
    #[error("node {0} is a voter already")]
    Duplicate(NodeId),
    #[error("node {node} with directory {directory} is no voter", directory = kafka_uuid::format(*.directory))]
    NotFound { node: NodeId, directory: DirectoryId },
    #[error("node {0} is the only voter")]
    LastVoter(NodeId),
    #[error(
        "without node {node} only {reached} of {voters} voters would be reached, which is no majority: bring the others back \
         first"
    )]
    LosesQuorum { node: NodeId, reached: usize, voters: usize },
    #[error("only {reached} of {voters} voters are reached, and no change is made without a majority")]
    NoMajority { reached: usize, voters: usize },
}

/// The voters as the leader sees them.
#[derive(Clone, Debug, Default)]
pub struct VoterSet {
    pub voters: BTreeMap<NodeId, Member>,
    /// Those that have been heard lately, the leader among them.
    pub reached: BTreeSet<NodeId>,
    /// Whether the last change is committed, and no other one half made.
    pub settled: bool,
    /// The listener of controllers that every voter must have.
    pub listener: Option<String>,
}

impl VoterSet {
    /// Whether the voters are those of the configuration, which does not name their directories.
    pub fn is_static(&self) -> bool {
        is_static(self.voters.values())
    }

    /// Whether a change may be made; in the order in which Kafka's controllers look.
    pub fn check(&self, change: &VoterChange) -> Result<(), ChangeRefused> {
        let (node, directory, member) = match change {
            VoterChange::Add { node, member } | VoterChange::Update { node, member } => {
                (*node, member.directory_id, Some(member))
            }
            VoterChange::Remove { node, directory } => (*node, *directory, None),
        };
        if node.0 < 0 || directory.is_nil() {
            return Err(ChangeRefused::NoVoter);
        }
        if let Some((member, listener)) = member.zip(self.listener.as_ref())
            && member.endpoints.iter().all(|endpoint| endpoint.listener != *listener)
        {
            return Err(ChangeRefused::NoListener(listener.clone()));
        }
        if self.is_static() {
            return self.check_static(node, directory, change);
        }
        if !self.settled {
            return Err(ChangeRefused::Pending);
        }
        let known = self.voters.get(&node);
        match change {
            VoterChange::Add { .. } if known.is_some() => Err(ChangeRefused::Duplicate(node)),
            VoterChange::Remove { .. } | VoterChange::Update { .. }
                if known.is_none_or(|known| known.directory_id != directory) =>
            {
                Err(ChangeRefused::NotFound { node, directory })
            }
            VoterChange::Add { .. } | VoterChange::Update { .. } => self.check_majority(),
            VoterChange::Remove { .. } => self.check_removed(node),
        }
    }

    /// Voters of the configuration may tell where they listen, with whatever directory; nothing else can be changed.
    fn check_static(
        &self,
        node: NodeId,
        directory: DirectoryId,
        change: &VoterChange,
    ) -> Result<(), ChangeRefused> {
        match change {
            VoterChange::Update { .. } if self.voters.contains_key(&node) => Ok(()),
            VoterChange::Update { .. } => Err(ChangeRefused::NotFound { node, directory }),
            VoterChange::Add { .. } | VoterChange::Remove { .. } => Err(ChangeRefused::Static),
        }
    }

    /// Both the old voters and the new ones have to agree; a majority of the old ones and a new one that is followed closely
    /// while it is added are a majority of the new ones.
    fn check_majority(&self) -> Result<(), ChangeRefused> {
        let (reached, voters) = (self.reached.len(), self.voters.len());
        if 2 * reached > voters { Ok(()) } else { Err(ChangeRefused::NoMajority { reached, voters }) }
    }

    fn check_removed(&self, node: NodeId) -> Result<(), ChangeRefused> {
        let voters = self.voters.len() - 1;
        if voters == 0 {
            return Err(ChangeRefused::LastVoter(node));
        }
        self.check_majority()?;
        let reached = self.reached.iter().filter(|reached| **reached != node).count();
        if 2 * reached > voters { Ok(()) } else { Err(ChangeRefused::LosesQuorum { node, reached, voters }) }
    }
}

/// Whether these voters are those of the configuration (kraft.version 0), which does not name their directories.
pub fn is_static<'a>(voters: impl IntoIterator<Item = &'a Member>) -> bool {
    voters.into_iter().any(|member| member.directory_id.is_nil())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::raft_types::Endpoint;

    fn member(node: i32, listener: &str) -> Member {
        let endpoint = Endpoint { listener: listener.into(), host: "h".into(), port: 9093 };
        Member { directory_id: DirectoryId::from_u128(1000 + node as u128), endpoints: vec![endpoint] }
    }

    /// Nodes `1..=voters`, of which `reached` are heard.
    fn set(voters: i32, reached: &[i32]) -> VoterSet {
        VoterSet {
            voters: (1..=voters).map(|node| (NodeId(node), member(node, "CONTROLLER"))).collect(),
            reached: reached.iter().map(|node| NodeId(*node)).collect(),
            settled: true,
            listener: Some("CONTROLLER".into()),
        }
    }

    fn add(node: i32) -> VoterChange {
        VoterChange::Add { node: NodeId(node), member: member(node, "CONTROLLER") }
    }

    fn remove(node: i32) -> VoterChange {
        VoterChange::Remove { node: NodeId(node), directory: member(node, "").directory_id }
    }

    #[test]
    fn changes_never_leave_a_quorum_without_a_majority() {
        // How many voters there are, which are reached, and which changes are allowed: adding one, removing one that is
        // reached, removing one that is not.
        for (voters, reached, may_add, may_remove_reached, may_remove_other) in [
            (1, &[1][..], true, false, None),
            (2, &[1, 2], true, true, None),
            // The old voters have to agree too, so one of two cannot take the other out.
            (2, &[1], false, false, Some(false)),
            (3, &[1, 2, 3], true, true, None),
            (3, &[1, 2], true, false, Some(true)),
            (4, &[1, 2, 3], true, true, Some(true)),
            (5, &[1, 2, 3, 4, 5], true, true, None),
            (5, &[1, 2, 3, 4], true, true, Some(true)),
            (5, &[1, 2, 3], true, false, Some(true)),
            // It leads no more, but does not know yet.
            (3, &[1], false, false, Some(false)),
            (5, &[1, 2], false, false, Some(false)),
        ] {
            let set = set(voters, reached);
            let what = format!("{voters} voters, {reached:?} reached");
            assert_eq!(set.check(&add(9)).is_ok(), may_add, "add to {what}");
            assert_eq!(set.check(&remove(1)).is_ok(), may_remove_reached, "remove 1 from {what}");
            let other = (reached.len() < voters as usize).then(|| set.check(&remove(voters)).is_ok());
            assert_eq!(other, may_remove_other, "remove {voters} from {what}");
        }
    }

    #[test]
    fn refusals_say_why() {
        let three = || set(3, &[1, 2, 3]);
        let refused = |set: &VoterSet, change: &VoterChange| set.check(change).unwrap_err();
        let (node, directory) = (NodeId(1), member(9, "").directory_id);
        let other_directory = VoterChange::Remove { node, directory };
        assert_eq!(refused(&three(), &other_directory), ChangeRefused::NotFound { node, directory });
        assert_eq!(
            refused(&three(), &remove(9)),
            ChangeRefused::NotFound { node: NodeId(9), directory: member(9, "").directory_id }
        );
        assert_eq!(refused(&three(), &add(1)), ChangeRefused::Duplicate(node));
        let unsettled = VoterSet { settled: false, ..three() };
        for change in [add(9), remove(1), VoterChange::Update { node, member: member(1, "CONTROLLER") }] {
            assert_eq!(refused(&unsettled, &change), ChangeRefused::Pending);
        }
        let elsewhere = VoterChange::Add { node: NodeId(9), member: member(9, "OTHER") };
        assert_eq!(refused(&three(), &elsewhere), ChangeRefused::NoListener("CONTROLLER".into()));
        let nobody = VoterChange::Remove { node, directory: DirectoryId::nil() };
        assert_eq!(refused(&three(), &nobody), ChangeRefused::NoVoter);
        let negative = VoterChange::Remove { node: NodeId(-1), directory };
        assert_eq!(refused(&three(), &negative), ChangeRefused::NoVoter);
        assert_eq!(refused(&set(1, &[1]), &remove(1)), ChangeRefused::LastVoter(node));
    }

    #[test]
    fn voters_of_the_configuration_only_tell_where_they_listen() {
        let mut set = set(3, &[1, 2, 3]);
        set.voters.values_mut().for_each(|member| member.directory_id = DirectoryId::nil());
        assert!(set.is_static());
        let update = |node| VoterChange::Update { node: NodeId(node), member: member(node, "CONTROLLER") };
        assert_eq!(set.check(&update(1)), Ok(()));
        assert!(matches!(set.check(&update(9)), Err(ChangeRefused::NotFound { .. })));
        for change in [add(9), remove(1)] {
            assert_eq!(set.check(&change), Err(ChangeRefused::Static));
        }
    }
}
