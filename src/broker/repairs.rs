//! Replicas of this broker that were found to be damaged. Other replicas are asked for what they have in place of it (`mending`),
//! again and again while that does not help. Where they have it but it does not fit, the cluster is told to do without this replica,
//! and that it is whole again once it has its records anew. While the metadata has such a replica in no directory (`LOST`), it is in no
//! in-sync set and cannot lead; its shard rebuilds it from the leader (`damaged`).
//!
//! Must not know logs. Invariants: a replica that nobody can take the place of is never given up, nor one whose records nobody else is
//! known to have; a partition is tried once at a time, and few are at the same time.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::{mpsc, watch};

use super::blocking::blocking;
use super::clock;
use super::lifecycle::{Lifecycle, LifecycleError};
use super::mending::{Attempt, Mender, Outcome};
use super::partitions::Partitions;
use crate::metadata::Image;
use crate::metadata::topics::{PartitionRegistration, can_do_without, is_nowhere};
use crate::types::{DirectoryId, MonotonicMs, NodeId, TopicIdPartition, directory_id};

/// How long it takes until what could not be told is told again, and what was not put right is tried again the first time.
const RETRY_MS: i64 = 1_000;
/// Each time it takes twice as long, up to this.
const BACKOFF_MAX_MS: i64 = 600_000;
/// After so many attempts in vain a replica is given up, if that is possible.
const ATTEMPTS: u32 = 3;
/// So many partitions are tried at the same time: each has some megabytes in memory, and a thread that blocks.
const ATTEMPTS_UNDER_WAY: usize = 2;

/// What a shard has to tell of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    Damaged(TopicIdPartition),
    /// What was damaged is cut off.
    Begun(TopicIdPartition),
    /// It has what is committed, in the log directory with this id, and stays there until it is taken back.
    Rebuilt(TopicIdPartition, DirectoryId),
    /// It goes on with a copy of its log, which is whole.
    Moved(TopicIdPartition),
}

/// What the cluster is to be told now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Due {
    pub give_up: Vec<TopicIdPartition>,
    pub take_back: Vec<(TopicIdPartition, DirectoryId)>,
}

/// What is to be repaired.
#[derive(Debug, Default)]
pub struct Repairs {
    open: BTreeMap<TopicIdPartition, State>,
    /// How many attempts have begun, and how many of them have not ended.
    begun: u64,
    under_way: usize,
    telling: Telling,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    damage: Option<Damage>,
    rebuilt_in: Option<DirectoryId>,
}

#[derive(Clone, Copy, Debug)]
struct Damage {
    /// So many attempts in a row have put nothing right.
    failures: u32,
    /// Others have sound records wherever this replica has not.
    is_elsewhere: bool,
    mending: Mending,
}

#[derive(Clone, Copy, Debug)]
enum Mending {
    /// An attempt is due then.
    Waits(MonotonicMs),
    UnderWay {
        number: u64,
        /// More damage was found since it began.
        is_outdated: bool,
    },
}

/// The cluster is told one thing after the other.
#[derive(Debug, Default)]
enum Telling {
    #[default]
    Idle,
    UnderWay(Due),
    /// It could not be told.
    Waits(MonotonicMs),
}

impl Repairs {
    pub fn note(&mut self, repair: Repair, now: MonotonicMs) {
        match repair {
            Repair::Damaged(id) => self.open.entry(id).or_default().note_damage(now),
            // What is known of damage, and is being done about it, is of what was cut off.
            Repair::Begun(id) => drop(self.open.remove(&id)),
            Repair::Rebuilt(id, directory) => {
                self.open.insert(id, State { damage: None, rebuilt_in: Some(directory) });
            }
            Repair::Moved(id) => drop(self.open.remove(&id)),
        }
    }

    pub fn is_idle(&self) -> bool {
        self.open.is_empty()
    }

    /// The attempts that the broker `me` is to begin by this image.
    pub fn begin(&mut self, me: NodeId, image: &Image, now: MonotonicMs) -> Vec<Attempt> {
        let is_told = |id: &TopicIdPartition| matches!(&self.telling, Telling::UnderWay(due) if due.give_up.contains(id));
        let due = |(id, state): (&TopicIdPartition, &State)| {
            let at = state.damage?.waits_until().filter(|at| *at <= now && !is_told(id))?;
            let partition = image.topics.partition(id.topic_id, id.partition)?;
            let (sources, leader_epoch) = (sources(image, me, partition), partition.leader_epoch);
            let attempt = Attempt { id: *id, number: 0, sources, leader_epoch };
            (!attempt.sources.is_empty()).then_some((at, attempt))
        };
        let mut due: Vec<(MonotonicMs, Attempt)> = self.open.iter().filter_map(due).collect();
        due.sort_by_key(|(at, _)| *at);
        due.truncate(ATTEMPTS_UNDER_WAY.saturating_sub(self.under_way));
        let mut begin = |mut attempt: Attempt| {
            (self.begun, self.under_way) = (self.begun + 1, self.under_way + 1);
            attempt.number = self.begun;
            if let Some(damage) = self.open.get_mut(&attempt.id).and_then(|state| state.damage.as_mut()) {
                damage.mending = Mending::UnderWay { number: self.begun, is_outdated: false };
            }
            attempt
        };
        due.into_iter().map(|(_, attempt)| begin(attempt)).collect()
    }

    /// An attempt has ended.
    pub fn ended(&mut self, attempt: &Attempt, outcome: Outcome, now: MonotonicMs) {
        self.under_way -= 1;
        // It may have been cut, or be nobody's any more.
        let Some(state) = self.open.get_mut(&attempt.id) else { return };
        let Some(damage) = &mut state.damage else { return };
        let Mending::UnderWay { number, is_outdated } = damage.mending else { return };
        if number == attempt.number {
            state.damage = damage.after(outcome, is_outdated, now);
        }
    }

    /// What the broker `me` is to tell by this image; nothing while it tells something.
    pub fn due(&mut self, me: NodeId, image: &Image, now: MonotonicMs) -> Due {
        let mut due = Due::default();
        match self.telling {
            Telling::Idle => {}
            Telling::Waits(until) if until <= now => self.telling = Telling::Idle,
            Telling::UnderWay(_) | Telling::Waits(_) => return due,
        }
        self.open.retain(|id, state| {
            let partition = image.topics.partition(id.topic_id, id.partition);
            let Some(partition) = partition.filter(|partition| partition.has_replica(me)) else {
                return false;
            };
            let is_lost = partition.directory(me) == Some(directory_id::LOST);
            match state.rebuilt_in {
                Some(directory) if is_nowhere(partition, me) => due.take_back.push((*id, directory)),
                _ => state.rebuilt_in = None,
            }
            let is_hopeless = state.damage.is_some_and(Damage::is_hopeless);
            if is_hopeless && !is_lost && can_do_without(image, me, partition) {
                due.give_up.push(*id);
            }
            state.damage.is_some() || state.rebuilt_in.is_some()
        });
        if due != Due::default() {
            self.telling = Telling::UnderWay(due.clone());
        }
        due
    }

    /// The cluster was told what was due, and does without these from now on; `None`: it could not be told.
    pub fn told(&mut self, given_up: Option<&[TopicIdPartition]>, now: MonotonicMs) {
        self.telling = match given_up {
            Some(_) => Telling::Idle,
            None => Telling::Waits(now.plus(RETRY_MS)),
        };
        for id in given_up.unwrap_or_default() {
            if let Some(state) = self.open.get_mut(id) {
                state.damage = None;
            }
        }
    }

    /// When there is something to do although nothing happens.
    pub fn wakes_at(&self, now: MonotonicMs) -> Option<MonotonicMs> {
        let attempts = self.open.values().filter_map(|state| state.damage?.waits_until());
        let tells = match self.telling {
            Telling::Waits(until) => Some(until),
            Telling::Idle | Telling::UnderWay(_) => None,
        };
        // What is due already waits for something else.
        attempts.chain(tells).filter(|at| *at > now).min()
    }
}

impl State {
    fn note_damage(&mut self, now: MonotonicMs) {
        let new = Damage { failures: 0, is_elsewhere: false, mending: Mending::Waits(now) };
        match &mut self.damage.get_or_insert(new).mending {
            Mending::UnderWay { is_outdated, .. } => *is_outdated = true,
            Mending::Waits(until) => *until = (*until).min(now.plus(RETRY_MS)),
        }
    }
}

impl Damage {
    fn waits_until(self) -> Option<MonotonicMs> {
        match self.mending {
            Mending::Waits(until) => Some(until),
            Mending::UnderWay { .. } => None,
        }
    }

    fn is_hopeless(self) -> bool {
        self.failures >= ATTEMPTS && self.is_elsewhere && self.waits_until().is_some()
    }

    /// What is left after an attempt.
    fn after(self, outcome: Outcome, is_outdated: bool, now: MonotonicMs) -> Option<Damage> {
        let Outcome { mended, left, lost, is_cut_short } = outcome;
        let more = is_outdated || is_cut_short;
        if left == 0 && !more {
            return None;
        }
        let failures = match (mended, left) {
            (0, 0) if !is_cut_short => 0,
            (0, _) => self.failures + 1,
            (_, left) => u32::from(left > 0),
        };
        let is_elsewhere = if is_cut_short { self.is_elsewhere } else { left > 0 && lost == 0 };
        let delay_ms = if is_outdated { RETRY_MS } else { backoff_ms(failures) };
        Some(Damage { failures, is_elsewhere, mending: Mending::Waits(now.plus(delay_ms)) })
    }
}

fn backoff_ms(failures: u32) -> i64 {
    RETRY_MS
        .checked_shl(failures.saturating_sub(1))
        .map_or(BACKOFF_MAX_MS, |ms| ms.clamp(RETRY_MS, BACKOFF_MAX_MS))
}

/// The brokers that have what this one has of a partition, the leader first.
fn sources(image: &Image, me: NodeId, partition: &PartitionRegistration) -> Vec<NodeId> {
    let is_source = |replica: &NodeId| *replica != me && image.brokers.is_active(*replica);
    let mut sources: Vec<NodeId> = partition.isr.iter().copied().filter(is_source).collect();
    sources.sort_unstable_by_key(|replica| (*replica != partition.leader, *replica));
    sources
}

/// Something that was under way is over.
enum Ended {
    Attempt(Attempt, Outcome),
    /// With those that were given up; `None`: it could not be told.
    Telling(Option<Vec<TopicIdPartition>>),
}

/// Tells the cluster of replicas.
pub trait TellsCluster: Clone + Send + Sync + 'static {
    /// That these were given up, and are whole again, in these log directories.
    fn take_back(
        &self,
        rebuilt: Vec<(TopicIdPartition, DirectoryId)>,
    ) -> impl Future<Output = Result<(), LifecycleError>> + Send;

    /// To do without these; comes with those that it can do without.
    fn give_up(
        &self,
        damaged: Vec<TopicIdPartition>,
    ) -> impl Future<Output = Result<Vec<TopicIdPartition>, LifecycleError>> + Send;
}

impl TellsCluster for Lifecycle {
    async fn take_back(&self, rebuilt: Vec<(TopicIdPartition, DirectoryId)>) -> Result<(), LifecycleError> {
        Lifecycle::take_back(self, rebuilt).await
    }

    async fn give_up(&self, damaged: Vec<TopicIdPartition>) -> Result<Vec<TopicIdPartition>, LifecycleError> {
        Lifecycle::give_up(self, damaged).await
    }
}

/// Has put right what can be, and tells the cluster what it must know, for as long as the shards live.
pub async fn run(
    me: NodeId,
    cluster: impl TellsCluster,
    mender: Mender,
    mut images: watch::Receiver<Arc<Image>>,
    mut heard: mpsc::UnboundedReceiver<Repair>,
) {
    let mut repairs = Repairs::default();
    let mut under_way: FuturesUnordered<BoxFuture<'static, Ended>> = FuturesUnordered::new();
    loop {
        let now = clock::monotonic();
        let wakes_at = repairs.wakes_at(now);
        let sleep_ms = wakes_at.map_or(0, |at| u64::try_from(at.since(now)).unwrap_or(0));
        tokio::select! {
            // All of it is looked at whatever comes first; so the same comes of it each time.
            biased;
            repair = heard.recv() => {
                let Some(repair) = repair else { return };
                repairs.note(repair, clock::monotonic());
            }
            Some(ended) = under_way.next() => match ended {
                Ended::Attempt(attempt, outcome) => repairs.ended(&attempt, outcome, clock::monotonic()),
                Ended::Telling(given_up) => repairs.told(given_up.as_deref(), clock::monotonic()),
            },
            changed = images.changed(), if !repairs.is_idle() => {
                if changed.is_err() {
                    return;
                }
            }
            () = clock::sleep(Duration::from_millis(sleep_ms)), if wakes_at.is_some() => {}
        }
        let (image, now) = (images.borrow_and_update().clone(), clock::monotonic());
        while let Ok(repair) = heard.try_recv() {
            repairs.note(repair, now);
        }
        for attempt in repairs.begin(me, &image, now) {
            let mender = mender.clone();
            under_way.push(Box::pin(async move {
                let outcome = mender.mend(&attempt).await;
                Ended::Attempt(attempt, outcome)
            }));
        }
        let due = repairs.due(me, &image, now);
        if due != Due::default() {
            let (cluster, partitions) = (cluster.clone(), mender.partitions.clone());
            under_way.push(Box::pin(async move { Ended::Telling(tell(due, &cluster, &partitions).await) }));
        }
    }
}

/// Comes with those that were given up; `None`: something was not told.
async fn tell(
    due: Due,
    cluster: &impl TellsCluster,
    partitions: &Partitions,
) -> Option<Vec<TopicIdPartition>> {
    let Due { give_up, take_back } = due;
    if !take_back.is_empty()
        && let Err(error) = cluster.take_back(take_back).await
    {
        tracing::warn!("Could not report that replicas are whole again: {error}");
        return None;
    }
    if give_up.is_empty() {
        return Some(give_up);
    }
    if let Err(error) = mark(&give_up, partitions).await {
        tracing::warn!("Could not note that replicas are damaged: {error}");
        return None;
    }
    let given_up = cluster.give_up(give_up).await;
    given_up.inspect_err(|error| tracing::warn!("Could not give up damaged replicas: {error}")).ok()
}

/// Notes beside their logs that replicas are damaged. When the cluster has them nowhere after a restart, that alone tells them from
/// those whose directories were away.
async fn mark(damaged: &[TopicIdPartition], partitions: &Partitions) -> io::Result<()> {
    let here: Vec<_> = damaged.iter().filter_map(|id| partitions.get(id)).collect();
    blocking(move || here.iter().try_for_each(|partition| partition.view().mark_damaged())).await
}

#[cfg(test)]
mod tests;
