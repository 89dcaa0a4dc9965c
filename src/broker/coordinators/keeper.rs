//! Which coordinators there are: starts one for each partition of the internal topic that this broker leads, in each term,
//! and stops it when the term is over.
//!
//! Must not know what a coordinator does. Invariant: of a partition there is one actor at most, in one term.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::AbortHandle;

use super::super::dynamic_config::DynamicConfig;
use super::super::lease::Lease;
use super::super::partitions::{Partition, Partitions, Role};
use super::super::reconciler::Reconciled;
use super::Coordinators;
use super::actor::Surroundings;
use crate::controller::MetadataHandle;
use crate::coordinator::Machine;
use crate::metadata::Image;
use crate::types::{LeaderEpoch, NodeId, PartitionIndex, TopicIdPartition};

/// How soon partitions are looked at again that the metadata has given to this broker, and that it does not lead yet: their logs
/// could not be opened.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// What coordinators are kept with.
#[derive(Clone, Debug)]
pub struct KeeperParts {
    pub me: NodeId,
    pub metadata: MetadataHandle,
    pub config: Arc<DynamicConfig>,
    pub partitions: Partitions,
    pub reconciled: Reconciled,
    pub lease: Lease,
}

pub struct Keeper<M: Machine> {
    coordinators: Coordinators<M>,
    parts: KeeperParts,
    running: BTreeMap<PartitionIndex, Running>,
}

/// An actor, and the term in which it coordinates.
struct Running {
    id: TopicIdPartition,
    leader_epoch: LeaderEpoch,
    task: AbortHandle,
}

impl<M: Machine> Keeper<M> {
    pub fn new(coordinators: Coordinators<M>, parts: KeeperParts) -> Keeper<M> {
        Keeper { coordinators, parts, running: BTreeMap::new() }
    }

    /// Follows what this broker leads until the broker stops.
    pub async fn run(mut self) {
        loop {
            let is_complete = self.catch_up();
            tokio::select! {
                changed = self.parts.reconciled.changed() => {
                    if !changed {
                        return;
                    }
                }
                () = tokio::time::sleep(LOOK_AGAIN), if !is_complete => {}
            }
        }
    }

    /// Makes the actors those of the partitions that are led here now. False when there is one that will be.
    fn catch_up(&mut self) -> bool {
        let image = self.parts.metadata.image();
        let Led { led, is_complete } =
            Led::of(&image, self.coordinators.topic(), &self.parts.partitions, self.parts.me);
        let over: Vec<PartitionIndex> = self
            .running
            .iter()
            .filter(|(index, running)| !led.get(index).is_some_and(|partition| running.is_of(partition)))
            .map(|(index, _)| *index)
            .collect();
        for index in over {
            self.stop(index);
        }
        for (index, partition) in led {
            if !self.running.contains_key(&index) {
                self.start(index, partition);
            }
        }
        is_complete
    }

    fn start(&mut self, index: PartitionIndex, partition: Arc<Partition>) {
        let KeeperParts { metadata, config, partitions, lease, .. } = self.parts.clone();
        let leader_epoch = partition.leadership().leader_epoch;
        let id = partition.id;
        let surroundings = Surroundings { images: metadata.subscribe(), config, partitions, lease };
        let task = tokio::spawn(self.coordinators.begin(partition, surroundings)).abort_handle();
        self.running.insert(index, Running { id, leader_epoch, task });
    }

    fn stop(&mut self, index: PartitionIndex) {
        self.coordinators.end(index);
        if let Some(running) = self.running.remove(&index) {
            // Whoever waits is answered by what is dropped.
            running.task.abort();
        }
    }
}

/// The partitions of an internal topic that this broker leads.
pub struct Led {
    pub led: BTreeMap<PartitionIndex, Arc<Partition>>,
    /// There is none that it will lead soon.
    pub is_complete: bool,
}

impl Led {
    pub fn of(image: &Image, topic: &str, partitions: &Partitions, me: NodeId) -> Led {
        let (mut led, mut is_complete) = (BTreeMap::new(), true);
        if let Some(topic) = image.topics.by_name(topic) {
            for (index, registration) in topic.partitions() {
                let id = TopicIdPartition { topic_id: topic.id, partition: index };
                let partition = partitions.get(&id);
                match partition.filter(|partition| partition.leadership().role == Role::Leader) {
                    Some(partition) => drop(led.insert(index, partition)),
                    None => is_complete &= registration.leader != me,
                }
            }
        }
        Led { led, is_complete }
    }
}

impl Running {
    fn is_of(&self, partition: &Partition) -> bool {
        self.id == partition.id && self.leader_epoch == partition.leadership().leader_epoch
    }
}

impl<M: Machine> Drop for Keeper<M> {
    fn drop(&mut self) {
        for running in self.running.values() {
            running.task.abort();
        }
    }
}
