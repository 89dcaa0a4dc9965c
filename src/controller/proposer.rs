//! The way into the metadata log: a handle that anybody may hold, and the one task that decides and proposes.
//!
//! Knows no openraft: the log is behind `MetadataLog`. Invariants: one batch at a time is under way, so each is decided
//! on the image that the one before has left; an answer leaves after the records that it stands on are applied; whoever
//! waits is answered, also when the node stops.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};

use crate::controller::deciding::{self, Asked, Command, ProposeError, Waiting};
use crate::controller::duties::Office;
use crate::controller::quorum::{Leadership, QuorumStatus, QuorumView};
use crate::controller::raft_types::{Applied, Batch};
use crate::controller::state_machine::Published;
use crate::metadata::{Decision, Image, ImageVersion};
use crate::peer::Address;
use crate::types::{NodeId, TimestampMs};

/// Decisions that may wait; more wait where they are made.
const QUEUE_LEN: usize = 1024;
/// A batch is closed when its records reach this size; the decisions after it wait for the next one.
const BATCH_BYTES: usize = 4 * 1024 * 1024;
/// How long `run` waits when the caller has no limit of its own.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// The log that batches go to; the simulation has its own.
pub trait MetadataLog: Send + Sync + 'static {
    /// Appends the batch and waits until it is committed and applied where the leader is; one for a term in which this node
    /// leads, in that term or never. `NotLeader` says that this is not known, and that the batch may be offered again.
    fn propose(&self, batch: Batch) -> impl Future<Output = Result<Applied, ProposeError>> + Send;

    /// A version of the image that holds all that was committed before the call. `NotLeader` is worth another try.
    fn confirm(&self) -> impl Future<Output = Result<u64, ProposeError>> + Send;

    /// Waits until another try may go better: another node leads, or a little time has passed.
    fn changes(&self) -> impl Future<Output = ()> + Send;
}

/// Reads and changes the cluster's metadata; cheap to clone.
#[derive(Clone, Debug)]
pub struct MetadataHandle {
    queue: mpsc::Sender<Box<dyn Command>>,
    published: Arc<Published>,
    quorum: QuorumView,
}

impl MetadataHandle {
    /// The newest image.
    pub fn image(&self) -> Arc<Image> {
        self.published.image()
    }

    /// Hears of every newer image; changes in quick succession are heard of once.
    pub fn subscribe(&self) -> watch::Receiver<Arc<Image>> {
        self.published.subscribe()
    }

    /// Waits for an image newer than `seen`. When the node has stopped there is none, and this never ends.
    pub async fn changed(&self, seen: ImageVersion) -> Arc<Image> {
        let mut images = self.subscribe();
        let newer = images.wait_for(|image| image.version > seen).await.map(|image| Arc::clone(&image));
        match newer {
            Ok(image) => image,
            Err(_) => std::future::pending().await,
        }
    }

    /// Decides and waits until the decision is committed and applied here. `decide` is run on the image that the change
    /// will meet; it runs again when that turns out to be another one.
    pub async fn run<R: Send + 'static>(
        &self,
        decide: impl FnMut(&Image) -> Decision<R> + Send + 'static,
    ) -> Result<R, ProposeError> {
        self.run_within(TIME_LIMIT, decide).await
    }

    /// `run` with a time limit. A change that is not decided by then is dropped; one that is may still take effect.
    pub async fn run_within<R: Send + 'static>(
        &self,
        limit: Duration,
        decide: impl FnMut(&Image) -> Decision<R> + Send + 'static,
    ) -> Result<R, ProposeError> {
        self.ask(limit, deciding::command(decide)).await
    }

    /// `run` for what goes by what this node knows as the active controller of `term`: it takes effect in that term or never.
    /// Once the term is over `decide` must come to no records.
    pub async fn run_in_term<R: Send + 'static>(
        &self,
        term: u64,
        decide: impl FnMut(&Image) -> Decision<R> + Send + 'static,
    ) -> Result<R, ProposeError> {
        self.ask(TIME_LIMIT, deciding::command_of(Some(term), decide)).await
    }

    async fn ask<R>(&self, limit: Duration, (command, answer): Asked<R>) -> Result<R, ProposeError> {
        let asked = async {
            self.queue.send(command).await.map_err(|_| ProposeError::ShuttingDown)?;
            answer.await.unwrap_or(Err(ProposeError::ShuttingDown))
        };
        tokio::time::timeout(limit, asked).await.unwrap_or(Err(ProposeError::Timeout))
    }

    /// The active controller, as far as this node knows.
    pub fn leader(&self) -> Option<NodeId> {
        self.quorum.leader()
    }

    /// The term in which this node is the active controller, for as long as it is.
    pub fn office(&self) -> Office {
        self.quorum.office()
    }

    /// Whether this node is the active controller, as far as it knows.
    pub fn is_leader(&self) -> bool {
        self.quorum.is_leader()
    }

    /// Whether this node holds itself for the active controller, and another may have become it without its knowledge.
    pub fn is_cut_off(&self) -> bool {
        self.quorum.is_cut_off()
    }

    /// Where to ask for the active controller, the likeliest place first; this node, if it is the one, comes last.
    pub fn controller_candidates(&self) -> Vec<Address> {
        self.quorum.leader_candidates()
    }

    /// Hears of every change of the active controller.
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.quorum.leadership()
    }

    /// Where a controller listens for the nodes of its cluster.
    pub fn controller_address(&self, node: NodeId) -> Option<Address> {
        self.quorum.address(node)
    }

    /// The level of the feature kraft.version, which the quorum keeps itself.
    pub fn kraft_version(&self) -> i16 {
        self.quorum.kraft_version()
    }

    /// The state of the quorum, as DescribeQuorum tells it.
    pub fn quorum_status(&self, now: TimestampMs) -> QuorumStatus {
        self.quorum.status(now)
    }
}

/// The handle and the task behind it, which ends when `stop` is sent or dropped.
pub fn proposer(
    log: impl MetadataLog,
    published: Arc<Published>,
    quorum: QuorumView,
    stop: oneshot::Receiver<()>,
) -> (MetadataHandle, impl Future<Output = ()> + Send) {
    let (queue, commands) = mpsc::channel(QUEUE_LEN);
    let handle = MetadataHandle { queue, published: Arc::clone(&published), quorum };
    (handle, Proposer { log, published, waiting: Waiting::new() }.run(commands, stop))
}

struct Proposer<L> {
    log: L,
    published: Arc<Published>,
    waiting: Waiting,
}

impl<L: MetadataLog> Proposer<L> {
    async fn run(mut self, mut commands: mpsc::Receiver<Box<dyn Command>>, mut stop: oneshot::Receiver<()>) {
        loop {
            if self.waiting.is_empty() {
                tokio::select! {
                    biased;
                    _ = &mut stop => break,
                    command = commands.recv() => match command {
                        Some(command) => self.waiting.push_back(command),
                        None => return,
                    },
                }
            }
            while self.waiting.len() < QUEUE_LEN
                && let Ok(command) = commands.try_recv()
            {
                self.waiting.push_back(command);
            }
            tokio::select! {
                biased;
                () = round(&self.log, &self.published, &mut self.waiting) => {}
                _ = &mut stop => break,
            }
        }
        commands.close();
        while let Ok(command) = commands.try_recv() {
            self.waiting.push_back(command);
        }
        for command in self.waiting {
            command.answer(Err(ProposeError::ShuttingDown));
        }
    }
}

/// Decides what waits, as much as one batch holds, and sees it through. What was decided on an image that has moved waits
/// again, or, when it came to no records, is decided again at once.
async fn round(log: &impl MetadataLog, published: &Published, waiting: &mut Waiting) {
    if let Some(confirmed) = settle(log, published, waiting, None).await {
        // Nobody has come to wait since, so what comes to no records again stands on all that was committed before.
        settle(log, published, waiting, Some(confirmed)).await;
    }
}

/// Decides once. Gives the version that a leader has confirmed when it is newer than the image that decisions without
/// records saw: all of them wait again, and nobody else. `confirmed` is such a version, of a confirmation that was asked
/// for after all who wait had come; what is decided on an image that has it needs no other.
async fn settle(
    log: &impl MetadataLog,
    published: &Published,
    waiting: &mut Waiting,
    confirmed: Option<u64>,
) -> Option<u64> {
    let (mut batch, mut decided) = deciding::decide_all(&published.image(), waiting, BATCH_BYTES);
    batch.tag = rand::random_range(1..=u64::MAX);
    let is_confirmed = batch.records.is_empty() && confirmed.is_some_and(|version| version <= batch.base);
    while !decided.is_empty() {
        let offered = if is_confirmed { Offered::Taken } else { offer(log, published, &batch).await };
        let outcome = match offered {
            Offered::Taken => Ok(()),
            Offered::Stale { confirmed } => {
                for command in decided.into_iter().rev() {
                    waiting.push_front(command);
                }
                return confirmed;
            }
            Offered::Again => {
                log.changes().await;
                decided.retain(|command| !command.is_abandoned());
                continue;
            }
            Offered::Failed(error) => Err(error),
        };
        for command in decided.drain(..) {
            command.answer(outcome.clone());
        }
    }
    None
}

/// What became of a batch.
enum Offered {
    /// It is in this node's image.
    Taken,
    /// The image has moved under it, and this node has the image that did; or it was for a term that is over. `confirmed` is the
    /// image's version where the batch held no records.
    Stale {
        confirmed: Option<u64>,
    },
    /// Nobody is known to have taken it.
    Again,
    Failed(ProposeError),
}

/// Offers a batch to whoever leads, and waits for this node's image to follow.
async fn offer(log: &impl MetadataLog, published: &Published, batch: &Batch) -> Offered {
    if batch.records.is_empty() {
        return confirm(log, published, batch.base).await;
    }
    match log.propose(batch.clone()).await {
        Ok(Applied::Records { version }) => {
            published.reached(version).await;
            Offered::Taken
        }
        Ok(Applied::Stale { version }) => {
            published.reached(version).await;
            // It may have been taken by a leader that did not live to say so.
            if published.has_taken(batch) {
                return Offered::Taken;
            }
            tracing::debug!(
                version,
                "the image or the term has moved under a batch of decisions; deciding again"
            );
            Offered::Stale { confirmed: None }
        }
        Ok(Applied::Nothing) => Offered::Taken,
        Err(ProposeError::NotLeader { .. }) => Offered::Again,
        Err(error) => Offered::Failed(error),
    }
}

/// Decisions without records stand when nothing that was committed before was missing in the image that they saw: its
/// version is `base`.
async fn confirm(log: &impl MetadataLog, published: &Published, base: u64) -> Offered {
    match log.confirm().await {
        Ok(version) if version <= base => Offered::Taken,
        Ok(version) => {
            published.reached(version).await;
            Offered::Stale { confirmed: Some(version) }
        }
        Err(ProposeError::NotLeader { .. }) => Offered::Again,
        Err(error) => Offered::Failed(error),
    }
}
