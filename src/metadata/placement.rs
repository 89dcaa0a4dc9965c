//! Where new replicas go: spread over racks first, then over brokers, live brokers before fenced ones, and never two
//! replicas of a partition on one broker. The first replica, which will lead, is always on a live broker.
//!
//! Racks are visited in turn, and so are the brokers within a rack; each partition starts one rack and one broker further
//! on than the one before, which makes stripes. The seed decides where the stripes begin, and after each full round
//! in which order racks and brokers come, so that repeated placements do not pile up on the first broker.

use super::brokers::Brokers;
use crate::types::NodeId;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Why there is no placement.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    #[error("a replication factor must be larger than 0")]
    NotPositive,
    #[error(
        "{wanted} replicas need {wanted} brokers, but only {brokers} are registered with an open log directory"
    )]
    TooFewBrokers { wanted: i16, brokers: usize },
    #[error("all brokers are fenced, or have all their log directories cordoned")]
    NoLiveBroker,
}

/// The replicas of `partitions` new partitions, the leader first.
pub fn place(
    brokers: &Brokers,
    partitions: usize,
    replication_factor: i16,
    seed: u64,
) -> Result<Vec<Vec<NodeId>>, PlacementError> {
    let mut stripes = Stripes::new(brokers, seed);
    let replicas = usize::try_from(replication_factor).unwrap_or(0);
    if replicas == 0 {
        return Err(PlacementError::NotPositive);
    }
    if stripes.live == 0 {
        return Err(PlacementError::NoLiveBroker);
    }
    if replicas > stripes.brokers {
        return Err(PlacementError::TooFewBrokers { wanted: replication_factor, brokers: stripes.brokers });
    }
    Ok((0..partitions).map(|_| stripes.next_partition(replicas)).collect())
}

struct Rack {
    live: Vec<NodeId>,
    fenced: Vec<NodeId>,
    /// Where the live and the fenced brokers of the next partition begin.
    live_start: usize,
    fenced_start: usize,
    /// How many brokers of this rack the current partition has.
    taken: usize,
}

impl Rack {
    fn next(&mut self) -> Option<NodeId> {
        let taken = self.taken;
        let broker = if taken < self.live.len() {
            self.live[(self.live_start + taken) % self.live.len()]
        } else {
            let taken = taken - self.live.len();
            if taken >= self.fenced.len() {
                return None;
            }
            self.fenced[(self.fenced_start + taken) % self.fenced.len()]
        };
        self.taken += 1;
        Some(broker)
    }

    fn next_live(&mut self) -> Option<NodeId> {
        if self.taken < self.live.len() { self.next() } else { None }
    }
}

struct Stripes {
    racks: Vec<Rack>,
    first_rack: usize,
    brokers: usize,
    live: usize,
    placed_in_round: usize,
    random: Random,
}

impl Stripes {
    fn new(brokers: &Brokers, seed: u64) -> Stripes {
        let mut random = Random(seed);
        let mut by_rack: BTreeMap<Option<Arc<str>>, Rack> = BTreeMap::new();
        for broker in brokers.iter().filter(|broker| broker.takes_new_partitions()) {
            let rack = by_rack.entry(broker.rack.clone()).or_insert_with(|| Rack {
                live: Vec::new(),
                fenced: Vec::new(),
                live_start: 0,
                fenced_start: 0,
                taken: 0,
            });
            let list = if broker.is_active() { &mut rack.live } else { &mut rack.fenced };
            list.push(broker.id);
        }
        let mut racks: Vec<Rack> = by_rack.into_values().collect();
        for rack in &mut racks {
            rack.live_start = random.below(rack.live.len());
            rack.fenced_start = random.below(rack.fenced.len());
        }
        Stripes {
            first_rack: random.below(racks.len()),
            brokers: racks.iter().map(|rack| rack.live.len() + rack.fenced.len()).sum(),
            live: racks.iter().map(|rack| rack.live.len()).sum(),
            placed_in_round: 0,
            racks,
            random,
        }
    }

    fn next_partition(&mut self, replicas: usize) -> Vec<NodeId> {
        if self.placed_in_round == self.live && self.live > 1 {
            self.shuffle();
        }
        let racks = self.racks.len();
        let start = self.first_rack % racks;
        let leader = (start..start + racks)
            .find_map(|rack| Some((rack % racks, self.racks[rack % racks].next_live()?)));
        let Some((leader_rack, leader)) = leader else {
            unreachable!("there is a live broker, and this partition has none yet")
        };
        let mut placement = vec![leader];
        // The leader's rack has had its turn in the first round.
        let turns =
            (start..start + racks).filter(|rack| rack % racks != leader_rack).chain(start..usize::MAX);
        for rack in turns {
            if placement.len() == replicas {
                break;
            }
            placement.extend(self.racks[rack % racks].next());
        }
        self.first_rack = start + 1;
        self.placed_in_round += 1;
        for rack in &mut self.racks {
            rack.taken = 0;
            rack.live_start += 1;
            rack.fenced_start += 1;
        }
        placement
    }

    fn shuffle(&mut self) {
        self.random.shuffle(&mut self.racks);
        for rack in &mut self.racks {
            self.random.shuffle(&mut rack.live);
            self.random.shuffle(&mut rack.fenced);
        }
        self.placed_in_round = 0;
    }
}

/// Splitmix64: small, and the same numbers for the same seed on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; 0 when there is none.
    fn below(&mut self, bound: usize) -> usize {
        let number = self.next();
        if bound == 0 { 0 } else { (number % bound as u64) as usize }
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::messages::StrBytes;
    use crate::wire::messages::metadata::RegisterBrokerRecord;

    /// Brokers 0 to `live + fenced`, spread over the racks in turn; the last ones are fenced.
    fn brokers(live: i32, fenced: i32, racks: i32) -> Brokers {
        let mut brokers = Brokers::default();
        for id in 0..live + fenced {
            brokers.register(&RegisterBrokerRecord {
                broker_id: id,
                fenced: id >= live,
                rack: (racks > 1).then(|| StrBytes::from_string(format!("r{}", id % racks))),
                ..RegisterBrokerRecord::default()
            });
        }
        brokers
    }

    #[test]
    fn replicas_and_leaders_spread_evenly() {
        for seed in 0..50 {
            let placed = place(&brokers(6, 0, 3), 18, 3, seed).unwrap();
            for replicas in &placed {
                let mut racks: Vec<i32> = replicas.iter().map(|id| id.0 % 3).collect();
                racks.sort_unstable();
                assert_eq!(racks, [0, 1, 2], "one replica in each rack: {placed:?}");
            }
            for id in 0..6 {
                let leads = placed.iter().filter(|replicas| replicas[0] == NodeId(id)).count();
                let replicas = placed.iter().flatten().filter(|replica| **replica == NodeId(id)).count();
                assert!((2..=4).contains(&leads), "broker {id} leads {leads}: {placed:?}");
                assert!((7..=11).contains(&replicas), "broker {id} has {replicas} replicas: {placed:?}");
            }
        }
    }

    #[test]
    fn fenced_brokers_come_last_and_never_lead() {
        for seed in 0..50 {
            for replicas in place(&brokers(2, 3, 2), 20, 4, seed).unwrap() {
                assert!(replicas[0].0 < 2);
                let mut distinct = replicas.clone();
                distinct.sort_unstable();
                distinct.dedup();
                assert_eq!(distinct.len(), 4);
                assert_eq!(distinct.iter().filter(|id| id.0 < 2).count(), 2, "live ones first: {replicas:?}");
            }
        }
    }

    #[test]
    fn what_cannot_be_placed() {
        assert_eq!(place(&brokers(1, 0, 1), 1, 0, 0), Err(PlacementError::NotPositive));
        assert_eq!(place(&brokers(0, 2, 1), 1, 1, 0), Err(PlacementError::NoLiveBroker));
        let few = PlacementError::TooFewBrokers { wanted: 3, brokers: 2 };
        assert_eq!(place(&brokers(1, 1, 1), 1, 3, 0), Err(few));
    }
}
