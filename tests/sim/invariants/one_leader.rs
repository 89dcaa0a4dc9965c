//! One leader per epoch: no two processes ever lead a partition in the same term of office.

use std::collections::BTreeMap;

use super::{Broken, Sight};
use crate::broker::partitions::Role;
use crate::types::{LeaderEpoch, NodeId, TopicIdPartition};

#[derive(Debug, Default)]
pub struct OneLeader {
    leaders: BTreeMap<(TopicIdPartition, LeaderEpoch), (NodeId, u64)>,
}

impl OneLeader {
    pub fn check(&mut self, sight: &Sight<'_>) -> Result<(), Broken> {
        if sight.leadership.role != Role::Leader {
            return Ok(());
        }
        let term = (sight.id, sight.leadership.leader_epoch);
        let me = (sight.node, sight.life);
        let leader = *self.leaders.entry(term).or_insert(me);
        if leader == me {
            Ok(())
        } else {
            Err(format!("one leader: {term:?} is led by {leader:?} and by {me:?}"))
        }
    }
}
