//! How messages reach a shard: requests through a bounded queue, whose permits are the back-pressure on connections, and
//! events of the broker itself through a queue of their own, so that a flush report never waits behind a queue of appends.
//!
//! Must not know what the shard does with a message. Invariant: messages of one sender arrive in order; a shard's thread that
//! panics takes the process down, since half a broker would answer with half the truth.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::clock::{self, Now};
use super::flusher::FlushReport;
use super::messages::{
    AppendAt, BeginVerification, Compact, DeleteRecords, Fetched, FollowerFetched, Host, IsrAltered, Produce,
    Promote, ReplicaSettings, RoleSpec,
};
use super::partitions::Partition;
use super::shard::Shard;
use crate::storage::log::producer_state::ActiveProducer;
use crate::storage::log::{Damage, Log, LogConfig, Patch, Unfit};
use crate::types::{MonotonicMs, TopicIdPartition};

/// At most so many messages make one step.
const DRAIN_MAX: usize = 256;

/// Waking once a day for a deadline that is farther away costs nothing, and spares arithmetic at the end of time.
const SLEEP_MAX_MS: u64 = 86_400_000;

/// What a shard is told.
#[derive(Debug)]
pub enum Message {
    Produce(Produce),
    AppendAt(AppendAt),
    DeleteRecords(DeleteRecords),
    BeginVerification(BeginVerification),
    /// The producers that the replica of a partition here remembers; `None` when there is none.
    Producers(TopicIdPartition, oneshot::Sender<Option<Vec<ActiveProducer>>>),
    /// Delete some of the segments that a partition keeps no longer; the answer is whether there are more.
    Retain(TopicIdPartition, oneshot::Sender<bool>),
    Compact(TopicIdPartition, Box<Compact>),
    /// A reader has found damage in a partition's log.
    Damaged(TopicIdPartition, Damage),
    /// Write over what is damaged.
    Mend(TopicIdPartition, Box<Patch>, oneshot::Sender<Result<(), Unfit>>),
    /// Have a copy take the place of a partition's log.
    Promote(TopicIdPartition, Box<Promote>),
    /// Take over a partition whose log is open.
    Host(Box<Host>),
    /// Lead or follow from now on.
    Assume(TopicIdPartition, RoleSpec),
    Configure(TopicIdPartition, Arc<LogConfig>, ReplicaSettings),
    /// Let go of a partition; its log comes back, unless it was lost with its directory.
    Release(TopicIdPartition, oneshot::Sender<Option<Log>>),
    /// Answers when the requests before it have been dealt with.
    Fence(oneshot::Sender<()>),
    Flushed(Vec<FlushReport>),
    /// What leaders said to this shard's followers. Each of them says what it wants next.
    Fetched(Vec<Fetched>),
    /// Followers have fetched from this shard's leaders.
    FollowerFetched(Vec<FollowerFetched>),
    /// What became of the in-sync sets that this shard's leaders proposed.
    IsrAltered(Vec<IsrAltered>),
    /// The log directory with this index is out of service.
    DirectoryFailed(usize),
    /// Time has passed.
    Tick,
    /// Make everything durable, give all logs back, and end.
    Close(oneshot::Sender<Vec<(Arc<Partition>, Log)>>),
}

/// The sending side of a shard's mailbox.
#[derive(Clone, Debug)]
pub struct ShardSender {
    requests: mpsc::Sender<Message>,
    events: mpsc::UnboundedSender<Message>,
}

/// The receiving side.
#[derive(Debug)]
pub struct Mailbox {
    requests: mpsc::Receiver<Message>,
    events: mpsc::UnboundedReceiver<Message>,
}

/// A mailbox that holds up to `capacity` requests.
pub fn mailbox(capacity: usize) -> (ShardSender, Mailbox) {
    let (request_sender, requests) = mpsc::channel(capacity);
    let (event_sender, events) = mpsc::unbounded_channel();
    (ShardSender { requests: request_sender, events: event_sender }, Mailbox { requests, events })
}

impl ShardSender {
    /// Waits for room. A shard that has ended drops the message, and with it the reply slots, which answer by themselves.
    pub async fn send(&self, message: Message) {
        let _ = self.requests.send(message).await;
    }

    /// For what the broker tells itself; bounded by nature (one report per flush round).
    pub fn send_event(&self, message: Message) {
        let _ = self.events.send(message);
    }
}

impl Mailbox {
    /// Moves what is there into `batch`: all events, then requests up to the limit.
    pub fn drain(&mut self, batch: &mut Vec<Message>) {
        while let Ok(event) = self.events.try_recv() {
            batch.push(event);
        }
        while batch.len() < DRAIN_MAX {
            let Ok(request) = self.requests.try_recv() else { break };
            batch.push(request);
        }
    }

    /// Waits for a first message, or for the deadline. False when no message can come any more.
    async fn wait(&mut self, deadline: Option<MonotonicMs>, batch: &mut Vec<Message>) -> bool {
        let wake_at = deadline.map(|at| {
            let ms = u64::try_from(at.0.saturating_sub(clock::monotonic().0)).unwrap_or(0);
            let ms = ms.min(SLEEP_MAX_MS);
            Instant::now() + Duration::from_millis(ms)
        });
        let sleep = async {
            match wake_at {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            Some(event) = self.events.recv() => batch.push(event),
            Some(request) = self.requests.recv() => batch.push(request),
            () = sleep => batch.push(Message::Tick),
            else => return false,
        }
        true
    }
}

/// Starts the thread of a shard.
pub fn spawn(index: usize, mut shard: Shard, mut mailbox: Mailbox) -> io::Result<()> {
    // The runtime only parks the thread and keeps its deadlines.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let body = move || {
        let _fatal = AbortOnPanic;
        runtime.block_on(async {
            let mut batch = Vec::with_capacity(DRAIN_MAX);
            while !shard.is_closed() && mailbox.wait(shard.next_deadline(), &mut batch).await {
                mailbox.drain(&mut batch);
                shard.step(&mut batch, Now::system());
            }
        });
    };
    std::thread::Builder::new().name(format!("shard-{index}")).spawn(body).map(drop)
}

/// Takes the process down when the thread that holds it panics.
pub(super) struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}
