//! One attempt to put right what is damaged of a partition, with what other replicas have in its place. The replica stays what it
//! is: nothing is cut, nobody leaves an in-sync set, and it works where only one other is in sync.
//!
//! Must not know logs from inside, nor when it is tried again. Invariant: what comes from elsewhere is written only where the log
//! says that it fits (`storage::log::mend`), by the partition's shard, and synced like all that it writes.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::blocking::blocking;
use super::clock;
use super::partitions::{Partition, Partitions};
use super::transactions::Peers;
use crate::storage::log::{Looked, Patch, Progress, Unfit, Wound};
use crate::types::{LeaderEpoch, MonotonicMs, NodeId, Offset, TopicIdPartition};
use crate::wire::messages::RecordBytes;
use crate::wire::messages::fetch_request::{FetchPartition, FetchRequest, FetchTopic};
use crate::wire::messages::follower_fetch::FollowerFetchRequest;

/// How long another broker may take to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// How much of its records is asked for at a time; at least a batch comes.
const FETCH_BYTES: i32 = 1 << 20;
/// So much may be written at once, or two of the largest batches of the topic: damage can lie across where they meet.
const WOUND_BYTES_MAX: usize = 16 << 20;
/// So many places are put right in one attempt at most, and so many left as they are: others have their turn.
const MENDED_MAX: usize = 1_000;
const LEFT_MAX: usize = 100;
/// And it takes so long at most.
const ATTEMPT_MS_MAX: i64 = 60_000;

/// What is tried, by the metadata of one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    pub id: TopicIdPartition,
    /// No other attempt has it.
    pub number: u64,
    /// Who are in sync, the leader first, in the term with this epoch.
    pub sources: Vec<NodeId>,
    pub leader_epoch: LeaderEpoch,
}

/// What has come of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// So many places hold again what was written.
    pub mended: usize,
    /// So many are as they were.
    pub left: usize,
    /// Of these it is not known that all others have sound records there.
    pub lost: usize,
    /// There may be more.
    pub is_cut_short: bool,
}

/// What attempts need.
#[derive(Clone, Debug)]
pub struct Mender {
    pub peers: Peers,
    pub partitions: Partitions,
}

/// An attempt under way.
struct Work<'a> {
    mender: &'a Mender,
    attempt: &'a Attempt,
    partition: Arc<Partition>,
    /// Those of the sources that answer.
    sources: Vec<NodeId>,
    ends_at: MonotonicMs,
    outcome: Outcome,
    /// Who had what was put right, and from which offset on to which that was.
    helped: BTreeSet<NodeId>,
    mended: Option<(Offset, Offset)>,
    /// The first offset that was not, and why.
    left: Option<(Offset, String)>,
}

impl Mender {
    /// Puts right what is known to be damaged of a partition.
    pub async fn mend(&self, attempt: &Attempt) -> Outcome {
        // What is not here any more is not damaged.
        let Some(partition) = self.partitions.get(&attempt.id) else { return Outcome::default() };
        let sources = attempt.sources.clone();
        let (outcome, helped, mended, left) = Default::default();
        let ends_at = clock::monotonic().plus(ATTEMPT_MS_MAX);
        let mut work =
            Work { mender: self, attempt, partition, sources, ends_at, outcome, helped, mended, left };
        let (partition, mut before) = (work.partition.clone(), None);
        let is_online = || partition.directory().is_online();
        while let Some(begun) = partition.view().next_damaged(before.as_ref()).filter(|_| is_online()) {
            before = Some(begun.clone());
            let from = begun.next();
            if let Err(error) = work.look_through(begun).await {
                work.leave(from, true, format!("It cannot be read: {error}"));
            }
            if work.is_over() {
                break;
            }
        }
        if !is_online() {
            // A log directory that is out of service is another matter.
            return Outcome::default();
        }
        work.tell();
        if work.outcome.left == 0 && !work.outcome.is_cut_short {
            work.note_whole().await;
        }
        work.outcome
    }
}

impl Work<'_> {
    async fn look_through(&mut self, mut progress: Progress) -> io::Result<()> {
        loop {
            let view = self.partition.view();
            match blocking(move || view.look(progress)).await? {
                Looked::Gone => return Ok(()),
                Looked::Cut => {
                    self.outcome.is_cut_short = true;
                    return Ok(());
                }
                Looked::Done(progress) => {
                    progress.forget_damage();
                    return Ok(());
                }
                Looked::Wound(wound) => progress = self.close(wound).await,
            }
            if self.is_over() {
                return Ok(());
            }
        }
    }

    /// Whether it has gone on for long enough.
    fn is_over(&mut self) -> bool {
        let Outcome { mended, left, .. } = self.outcome;
        self.outcome.is_cut_short |= mended >= MENDED_MAX || clock::monotonic() >= self.ends_at;
        self.outcome.is_cut_short || left >= LEFT_MAX
    }

    /// It may have been about to be given up.
    async fn note_whole(&self) {
        let view = self.partition.view();
        if let Err(error) = blocking(move || view.clear_mark()).await {
            tracing::debug!(partition = %self.partition.name, "cannot note that it is whole: {error}");
        }
    }

    fn leave(&mut self, from: Offset, is_lost: bool, why: String) {
        self.outcome.left += 1;
        self.outcome.lost += usize::from(is_lost);
        self.left.get_or_insert((from, why));
    }

    /// Looks for somebody whose records fit, and goes on behind.
    async fn close(&mut self, wound: Wound) -> Progress {
        let (from, mut sound, mut why) = (wound.from(), 0, None);
        for source in self.sources.clone() {
            let mut tried = self.close_from(source, &wound, from).await;
            if let (Some(Err(unfit)), Some(says)) = (&tried, wound.says())
                && unfit.is_sound()
            {
                tried = self.close_from(source, &wound, says).await.filter(Result::is_ok).or(tried);
            }
            let unfit = match tried {
                None => continue,
                Some(Err(unfit)) => unfit,
                Some(Ok(patch)) => {
                    let progress = wound.mended(&patch);
                    self.note_mended(source, from, progress.next());
                    return progress;
                }
            };
            if unfit == Unfit::Gone {
                // It has to be looked at anew.
                self.outcome.is_cut_short = true;
                return wound.left();
            }
            sound += usize::from(unfit.is_sound());
            why.get_or_insert(format!("Broker {source}: {unfit}"));
        }
        // Whoever leads then must have it.
        let is_lost = sound == 0 || sound < self.attempt.sources.len();
        self.leave(from, is_lost, why.unwrap_or_else(|| "Nobody answers".to_owned()));
        wound.left()
    }

    /// Writes what this broker has, if it fits; `None`: nothing is known of what it has.
    async fn close_from(
        &mut self,
        source: NodeId,
        wound: &Wound,
        from: Offset,
    ) -> Option<Result<Patch, Unfit>> {
        let (mut records, mut next) = (Bytes::new(), from);
        let largest = self.partition.log_config().max_message_bytes as usize;
        let most = WOUND_BYTES_MAX.max(largest.saturating_mul(2));
        loop {
            let more = self.fetch(source, next.max(self.partition.view().log_start)).await?;
            if more.is_empty() {
                return Some(Err(Unfit::Nothing));
            }
            records = if records.is_empty() { more } else { [records, more].concat().into() };
            let (view, asked, offered) = (self.partition.view(), wound.clone(), records.clone());
            let patch = match blocking(move || view.patch(&asked, &offered)).await {
                Ok(Ok(patch)) => patch,
                Ok(Err(Unfit::Short { next: onwards, len })) if onwards > next && records.len() < most => {
                    next = onwards;
                    records.truncate(len);
                    continue;
                }
                Ok(Err(unfit)) => return Some(Err(unfit)),
                Err(error) => {
                    tracing::warn!(partition = %self.partition.name, "cannot read what is damaged: {error}");
                    return None;
                }
            };
            let mended = self.mender.partitions.mend(self.attempt.id, patch.clone()).await;
            return Some(mended.map(|()| patch));
        }
    }

    fn note_mended(&mut self, source: NodeId, from: Offset, next: Offset) {
        self.outcome.mended += 1;
        self.helped.insert(source);
        self.mended = Some((self.mended.map_or(from, |(first, _)| first), next));
    }

    /// As a consumer would, but of a replica in this term: that tells the other broker nothing, and every replica answers, with
    /// what it knows to be committed. `None`: it does not answer.
    async fn fetch(&mut self, source: NodeId, from: Offset) -> Option<Bytes> {
        let Attempt { id, leader_epoch, .. } = self.attempt;
        let partition = FetchPartition::default()
            .with_partition(id.partition.0)
            .with_current_leader_epoch(leader_epoch.0)
            .with_fetch_offset(from.0)
            .with_partition_max_bytes(FETCH_BYTES);
        let topic = FetchTopic::default().with_topic_id(id.topic_id).with_partitions(vec![partition]);
        let request =
            FetchRequest::default().with_min_bytes(1).with_max_bytes(FETCH_BYTES).with_topics(vec![topic]);
        match self.mender.peers.call(source, FollowerFetchRequest(request), ANSWER_LIMIT).await {
            Ok(answer) => {
                let topic = answer.responses.into_iter().next();
                let records = topic.and_then(|topic| topic.partitions.into_iter().next()?.records);
                Some(records.map(RecordBytes::into_bytes).unwrap_or_default())
            }
            Err(error) => {
                tracing::debug!("Broker {source} does not say what it has of {id:?}: {error}");
                self.sources.retain(|other| *other != source);
                None
            }
        }
    }

    fn tell(&self) {
        let (name, Outcome { mended, left, .. }) = (&self.partition.name, self.outcome);
        if let Some((first, next)) = self.mended {
            let helped: Vec<String> = self.helped.iter().map(NodeId::to_string).collect();
            tracing::warn!(
                partition = %name,
                "damaged places: {mended}, from offset {first} to {}, hold again what was written there, which brokers {} had",
                next.plus(-1),
                helped.join(", ")
            );
        }
        if let Some((first, why)) = &self.left {
            tracing::warn!(
                partition = %name,
                "damaged places: {left}, the first at offset {first}, cannot be put right now with what other replicas have. {why}"
            );
        }
    }
}
