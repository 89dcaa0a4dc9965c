//! Committed offsets and the groups that they belong to: who may commit, fetch and delete them.

use super::super::command::{CommitOffsets, CommitTopic, FetchOffsets, FetchTopic, Identity};
use super::super::offsets::Fetched;
use super::super::reply::{
    CommitError, CommittedTopic, DeleteOffsetsError, FetchError, FetchedOffset, FetchedTopic,
    MetadataTooLarge, OffsetsDeleted, SubscribedToTopic,
};
use super::super::{Name, Now, Out, Producer};
use super::{Entry, Group, Groups};
use crate::types::{PartitionIndex, TimestampMs};

/// Kafka's mark for who is no member.
const NO_EPOCH: i32 = -1;

impl Groups {
    pub(super) fn commit(
        &mut self,
        producer: Option<Producer>,
        commit: CommitOffsets,
        now: Now,
        out: &mut Out,
    ) -> Result<Vec<CommittedTopic>, CommitError> {
        self.check_commit(producer, &commit)?;
        if producer.is_none()
            && let Some(Entry { group: Group::Classic(group), .. }) = self.groups.get_mut(&commit.group)
        {
            group.committed(&commit.member.member_id, now);
        }
        let metadata_max = self.settings.offsets.metadata_max_bytes;
        let (accepted, results): (Vec<CommitTopic>, Vec<CommittedTopic>) =
            commit.topics.into_iter().map(|topic| sort_out(topic, metadata_max)).unzip();
        if accepted.iter().any(|topic| !topic.partitions.is_empty()) {
            self.ensure(&commit.group, now.wall);
            producer.into_iter().for_each(|producer| self.producers.seen(producer));
            let kept_ms = commit.retention_ms.filter(|_| producer.is_none());
            let expires_at =
                kept_ms.map_or(TimestampMs::NONE, |ms| TimestampMs(now.wall.0.saturating_add(ms)));
            self.offsets.commit(&commit.group, producer, &accepted, expires_at, now.wall, out);
        }
        Ok(results)
    }

    fn check_commit(&self, producer: Option<Producer>, commit: &CommitOffsets) -> Result<(), CommitError> {
        if producer.is_some_and(|producer| self.producers.is_fenced(producer)) {
            return Err(CommitError::ProducerFenced);
        }
        match self.groups.get(&commit.group).map(|entry| &entry.group) {
            Some(Group::Classic(group)) => group.check_commit(&commit.member, producer.is_some()),
            Some(Group::Consumer(group)) => {
                let Identity { member_id, instance_id, generation } = &commit.member;
                let epoch = generation.unwrap_or(NO_EPOCH);
                let may_commit = group.check_commit(
                    member_id,
                    instance_id.as_deref(),
                    epoch,
                    producer.is_some(),
                    !commit.knows_epochs,
                )?;
                let metadata_max = self.settings.offsets.metadata_max_bytes;
                for topic in &commit.topics {
                    let stored =
                        topic.partitions.iter().filter(|partition| fits(&partition.metadata, metadata_max));
                    for partition in stored {
                        may_commit.check(topic.id, partition.index)?;
                    }
                }
                Ok(())
            }
            None if commit.member.generation.is_none() => Ok(()),
            None => Err(CommitError::GroupNotFound),
        }
    }

    pub(super) fn fetch(&self, fetch: FetchOffsets) -> Result<Vec<FetchedTopic>, FetchError> {
        match self.groups.get(&fetch.group).map(|entry| &entry.group) {
            // What a group of the classic protocol has committed is for all to see.
            Some(Group::Classic(_)) => Ok(self.offsets_of(&fetch.group, fetch.topics, fetch.require_stable)),
            Some(Group::Consumer(group)) => {
                let (member, epoch) =
                    fetch.member.as_ref().map_or((None, NO_EPOCH), |(id, epoch)| (Some(&**id), *epoch));
                group.check_fetch(member, epoch)?;
                Ok(self.offsets_of(&fetch.group, fetch.topics, fetch.require_stable))
            }
            None => Ok(fetch.topics.unwrap_or_default().into_iter().map(nothing_of).collect()),
        }
    }

    fn offsets_of(
        &self,
        group: &str,
        topics: Option<Vec<FetchTopic>>,
        require_stable: bool,
    ) -> Vec<FetchedTopic> {
        let Some(topics) = topics else {
            let all = self.offsets.fetch_all(group, require_stable).into_iter();
            return all
                .map(|(name, partitions)| {
                    let owned = partitions.into_iter().map(|(index, fetched)| (index, fetched.into()));
                    FetchedTopic { name: name.clone(), id: Default::default(), partitions: owned.collect() }
                })
                .collect();
        };
        let of_topic = |FetchTopic { name, id, partitions }: FetchTopic| {
            let fetch = |index| self.offsets.fetch(group, &name, id, index, require_stable).into();
            let partitions = partitions.into_iter().map(|index| (index, fetch(index))).collect();
            FetchedTopic { name, id, partitions }
        };
        topics.into_iter().map(of_topic).collect()
    }

    pub(super) fn delete_offsets(
        &mut self,
        id: &Name,
        topics: Vec<(Name, Vec<PartitionIndex>)>,
        out: &mut Out,
    ) -> Result<Vec<OffsetsDeleted>, DeleteOffsetsError> {
        let entry = self.groups.get(id).ok_or(DeleteOffsetsError::GroupNotFound)?;
        if let Group::Classic(group) = &entry.group {
            group.check_delete_offsets()?;
        }
        let mut deleted = Vec::new();
        for (topic, partitions) in topics {
            let is_subscribed = entry.group.is_subscribed_to(&topic);
            if !is_subscribed {
                for partition in &partitions {
                    self.offsets.delete(id, &topic, *partition, out);
                }
            }
            let result = if is_subscribed { Err(SubscribedToTopic) } else { Ok(()) };
            deleted.push(OffsetsDeleted { topic, partitions, result });
        }
        Ok(deleted)
    }
}

/// The partitions of a topic whose offsets are stored, and what to say of all.
fn sort_out(mut topic: CommitTopic, metadata_max: usize) -> (CommitTopic, CommittedTopic) {
    // As Kafka, which counts what Java counts.
    let fits =
        |metadata: &str| metadata.len() <= metadata_max || metadata.encode_utf16().count() <= metadata_max;
    let judge = |metadata: &str| if fits(metadata) { Ok(()) } else { Err(MetadataTooLarge) };
    let partitions =
        topic.partitions.iter().map(|partition| (partition.index, judge(&partition.metadata))).collect();
    topic.partitions.retain(|partition| fits(&partition.metadata));
    let said = CommittedTopic { name: topic.name.clone(), id: topic.id, partitions };
    (topic, said)
}

/// Whether the text may be stored, counted as Kafka does, which has it in UTF-16.
fn fits(metadata: &str, max: usize) -> bool {
    metadata.len() <= max || metadata.encode_utf16().count() <= max
}

fn nothing_of(FetchTopic { name, id, partitions }: FetchTopic) -> FetchedTopic {
    let partitions = partitions.into_iter().map(|index| (index, FetchedOffset::None)).collect();
    FetchedTopic { name, id, partitions }
}

impl From<Fetched<'_>> for FetchedOffset {
    fn from(fetched: Fetched<'_>) -> FetchedOffset {
        match fetched {
            Fetched::None => FetchedOffset::None,
            Fetched::Unstable => FetchedOffset::Unstable,
            Fetched::Offset(committed) => FetchedOffset::Offset {
                offset: committed.offset,
                leader_epoch: committed.leader_epoch,
                metadata: committed.metadata.clone(),
            },
        }
    }
}
