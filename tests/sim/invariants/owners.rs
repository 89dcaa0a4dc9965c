//! No partition is owned by two members of a group in one generation or epoch; who stays in the group after another was given
//! a partition does not have it any more; and what members have committed does not go back.

use std::collections::{BTreeMap, BTreeSet};

use super::Broken;
use crate::coordinator::group::Name;
use crate::sim::context::Ms;
use crate::types::{LeaderEpoch, Offset, PartitionIndex};

/// The group has told a member, in this term of its coordinator, that it is in it.
#[derive(Clone, Copy, Debug)]
pub struct Stay {
    pub member: usize,
    /// When the member asked, and when it heard.
    pub sent: Ms,
    pub at: Ms,
    pub term: LeaderEpoch,
    pub generation: i32,
}

#[derive(Debug)]
struct Given {
    member: usize,
    at: Ms,
    term: LeaderEpoch,
}

#[derive(Debug, Default)]
pub struct Owners {
    /// Who was given a partition in a generation or epoch: a member, or a static one's seat.
    in_generation: BTreeMap<(i32, PartitionIndex), Name>,
    /// Who was given it last, by another than whom it was taken over.
    given: BTreeMap<PartitionIndex, Given>,
    /// The latest offset that was told as committed, or found, and in which term.
    committed: BTreeMap<PartitionIndex, (Offset, LeaderEpoch)>,
    /// How often a partition went from one member to another.
    pub takeovers: u64,
}

impl Owners {
    /// These are a member's from now on.
    pub fn given(
        &mut self,
        stay: Stay,
        id: &Name,
        partitions: &BTreeSet<PartitionIndex>,
    ) -> Result<(), Broken> {
        let Stay { member, generation, at, term, .. } = stay;
        for index in partitions {
            let owner = self.in_generation.entry((generation, *index)).or_insert_with(|| id.clone());
            if owner != id {
                return Err(format!("owners: {owner} and {id} have partition {index} in {generation}"));
            }
            let before = self.given.get(index).map(|given| given.member);
            if before != Some(member) {
                self.takeovers += u64::from(before.is_some());
                self.given.insert(*index, Given { member, at, term });
            }
        }
        Ok(())
    }

    /// A member goes on with these, which it has had before it asked.
    pub fn stays<'a>(
        &self,
        stay: Stay,
        partitions: impl Iterator<Item = &'a PartitionIndex>,
    ) -> Result<(), Broken> {
        for index in partitions {
            let Some(given) = self.given.get(index) else { continue };
            // One that does not know yet that it has been replaced answers as of its own term.
            let is_other = given.member != stay.member && given.at < stay.sent && given.term <= stay.term;
            if is_other {
                return Err(format!(
                    "owners: partition {index} is of {given:?}, and with it goes on {stay:?}"
                ));
            }
        }
        Ok(())
    }

    /// A member was told that its offset is committed.
    pub fn committed(&mut self, stay: Stay, index: PartitionIndex, offset: Offset) -> Result<(), Broken> {
        self.stays(stay, std::iter::once(&index))?;
        let (known, of) = self.committed.entry(index).or_insert((offset, stay.term));
        (*known, *of) = (offset.max(*known), stay.term.max(*of));
        Ok(())
    }

    /// A member has found this offset when it began with a partition.
    pub fn found(
        &self,
        term: LeaderEpoch,
        index: PartitionIndex,
        floor: Offset,
        offset: Offset,
    ) -> Result<(), Broken> {
        let is_current = self.committed.get(&index).is_none_or(|(_, of)| *of <= term);
        if is_current && offset < floor {
            return Err(format!(
                "owners: the offset of partition {index} goes back from {floor} to {offset}"
            ));
        }
        Ok(())
    }

    /// What is committed for a partition, at least.
    pub fn floor(&self, index: PartitionIndex) -> Offset {
        self.committed.get(&index).map_or(Offset::ZERO, |(offset, _)| *offset)
    }
}
