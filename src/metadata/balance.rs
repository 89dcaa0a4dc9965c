//! What the controller does about leaders by itself, from time to time: leadership goes back to preferred replicas. It owns
//! which partitions are due; when to look is the caller's to know.

use super::election::ElectionDefaults;
use super::partition_change::{Election, PartitionChange};
use super::{Decision, Draft, Image};
use crate::types::NodeId;
use std::collections::{BTreeMap, BTreeSet};

/// The most elections that one decision should hold.
pub const MAX_ELECTIONS: usize = 1_000;

/// Gives partitions back to their preferred leaders where these are in sync: those that prefer a broker which leads too
/// few of the partitions that it should, by more than `tolerated_percentage` of them. With 0 all are given back, as
/// Kafka does since it has no such setting any more. True: the limit was reached, and there may be more to do.
pub fn balance_leaders(
    image: &Image,
    tolerated_percentage: u8,
    limit: usize,
    defaults: ElectionDefaults,
) -> Decision<bool> {
    let deprived = deprived(image, tolerated_percentage);
    let mut draft = Draft::new(image);
    for topic in image.topics.iter() {
        for (index, partition) in topic.partitions() {
            let preferred = partition.preferred_leader();
            if partition.leader == preferred || !deprived.contains(&preferred) {
                continue;
            }
            if draft.records.len() >= limit {
                return draft.decision(true);
            }
            let change = PartitionChange::new(image, topic, index, partition, defaults);
            if let Some(record) = change.election(Election::Preferred).record() {
                draft.add(record);
            }
        }
    }
    let reached = draft.records.len() >= limit;
    draft.decision(reached)
}

/// The brokers that lead too few of the partitions that prefer them.
fn deprived(image: &Image, tolerated_percentage: u8) -> BTreeSet<NodeId> {
    let mut counts: BTreeMap<NodeId, (usize, usize)> = BTreeMap::new();
    for (_, partition) in image.topics.iter().flat_map(|topic| topic.partitions()) {
        let preferred = partition.preferred_leader();
        let (all, elsewhere) = counts.entry(preferred).or_default();
        *all += 1;
        *elsewhere += usize::from(partition.leader != preferred);
    }
    let too_few =
        |(all, elsewhere): (usize, usize)| elsewhere * 100 > all * usize::from(tolerated_percentage);
    counts.into_iter().filter(|(_, counts)| too_few(*counts)).map(|(broker, _)| broker).collect()
}
