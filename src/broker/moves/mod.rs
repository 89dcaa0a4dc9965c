//! Moves of partitions from one log directory to another while they serve (KIP-113): which are under way, and who may begin
//! or end one. `course` is what happens in a single one.
//!
//! A handle, cheap to clone; behind it is one task that takes orders one after the other, and a task for each move. Must not know
//! requests or their errors. Invariants: a partition has one move at most, and one copy; an order is answered when what it
//! ends has ended, with its copy set aside.

mod course;

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use super::assignments::Assignments;
use super::blocking::blocking;
use super::checkpoints::Checkpoints;
use super::clock;
use super::directory::Directory;
use super::dynamic_config::DynamicConfig;
use super::log_dirs::{LogDirs, OpenError};
use super::partitions::{FutureReplica, Partition, Partitions};
use super::reconciler::Chore;
use super::throttles::ReplicationThrottle;
use crate::storage::log::Log;
use crate::storage::log_dir::PartitionDir;
use crate::types::TopicIdPartition;
use course::{Course, End};

/// Why a partition is not moved.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    #[error("this broker does not host the partition")]
    NotHosted,
    /// A copy of an earlier move may lie there.
    #[error("a log directory is out of service")]
    OutOfService,
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("the broker is shutting down")]
    ShuttingDown,
}

/// What moves work with.
#[derive(Debug)]
pub struct MoveParts {
    pub partitions: Partitions,
    pub dirs: Arc<LogDirs>,
    pub checkpoints: Arc<Checkpoints>,
    pub config: Arc<DynamicConfig>,
    pub chores: mpsc::UnboundedSender<Chore>,
    pub assignments: Assignments,
}

/// The same, with what all moves share.
#[derive(Debug)]
struct Shared {
    parts: MoveParts,
    throttle: ReplicationThrottle,
    /// So many moves copy at a time.
    turns: Semaphore,
}

#[derive(Debug)]
enum Order {
    Move { id: TopicIdPartition, target: Arc<Directory>, reply: oneshot::Sender<Result<(), MoveError>> },
    Resume(oneshot::Sender<()>),
    Abandon(Vec<TopicIdPartition>, oneshot::Sender<()>),
    Stop(oneshot::Sender<()>),
}

#[derive(Clone, Debug)]
pub struct Moves(mpsc::UnboundedSender<Order>);

impl Moves {
    /// Starts the task that takes orders.
    pub fn start(parts: MoveParts) -> (Moves, JoinHandle<()>) {
        let threads = parts.config.latest().broker.num_replica_alter_log_dirs_threads;
        let threads =
            threads.and_then(|threads| usize::try_from(threads).ok()).filter(|threads| *threads > 0);
        let turns = Semaphore::new(threads.unwrap_or(parts.dirs.directories().len()).max(1));
        let throttle = ReplicationThrottle::of_moves(parts.config.clone());
        let shared = Arc::new(Shared { parts, throttle, turns });
        let (orders, taken) = mpsc::unbounded_channel();
        let mover = Mover { shared, running: HashMap::new(), has_stopped: false };
        (Moves(orders), tokio::spawn(mover.run(taken)))
    }

    /// Begins to move a partition to a log directory, unless it lies there or is on its way there. A move to elsewhere ends.
    pub async fn begin(&self, id: TopicIdPartition, target: Arc<Directory>) -> Result<(), MoveError> {
        let (reply, begun) = oneshot::channel();
        let _ = self.0.send(Order::Move { id, target, reply });
        begun.await.unwrap_or(Err(MoveError::ShuttingDown))
    }

    /// Goes on with the moves that the end of an earlier process has interrupted.
    pub async fn resume(&self) {
        self.order(Order::Resume).await;
    }

    /// Ends the moves of partitions that are about to be let go of.
    pub async fn abandon(&self, ids: Vec<TopicIdPartition>) {
        self.order(|done| Order::Abandon(ids, done)).await;
    }

    /// Ends all moves such that a later process can go on with them. None begins any more.
    pub async fn stop(&self) {
        self.order(Order::Stop).await;
    }

    async fn order(&self, order: impl FnOnce(oneshot::Sender<()>) -> Order) {
        let (done, is_done) = oneshot::channel();
        let _ = self.0.send(order(done));
        // Where the task has ended there is nothing left to do.
        let _ = is_done.await;
    }
}

/// The task that takes orders.
struct Mover {
    shared: Arc<Shared>,
    running: HashMap<TopicIdPartition, Running>,
    has_stopped: bool,
}

struct Running {
    /// The index of the directory.
    target: usize,
    end: watch::Sender<Option<End>>,
    task: JoinHandle<()>,
}

impl Mover {
    async fn run(mut self, mut orders: mpsc::UnboundedReceiver<Order>) {
        while let Some(order) = orders.recv().await {
            self.running.retain(|_, running| !running.task.is_finished());
            // Who asked may have gone away.
            match order {
                Order::Move { reply, .. } if self.has_stopped => {
                    let _ = reply.send(Err(MoveError::ShuttingDown));
                }
                Order::Move { id, target, reply } => {
                    let _ = reply.send(self.begin(id, target).await);
                }
                Order::Resume(done) => {
                    self.resume().await;
                    let _ = done.send(());
                }
                Order::Abandon(ids, done) => {
                    let ended: Vec<_> = ids.iter().filter_map(|id| self.running.remove(id)).collect();
                    end_all(ended, End::Abandoned).await;
                    let _ = done.send(());
                }
                Order::Stop(done) => {
                    self.has_stopped = true;
                    end_all(self.running.drain().map(|(_, running)| running).collect(), End::Stopped).await;
                    let _ = done.send(());
                }
            }
        }
    }

    async fn begin(&mut self, id: TopicIdPartition, target: Arc<Directory>) -> Result<(), MoveError> {
        let MoveParts { partitions, dirs, .. } = &self.shared.parts;
        let partition = partitions.get(&id).ok_or(MoveError::NotHosted)?;
        if let Some(running) = self.running.remove(&id) {
            if running.target == target.index() {
                self.running.insert(id, running);
                return Ok(());
            }
            end_all(vec![running], End::Abandoned).await;
        }
        if partition.directory().index() == target.index() {
            return Ok(());
        }
        if dirs.any_is_out_of_service() {
            return Err(MoveError::OutOfService);
        }
        self.discard_left(&partition).await;
        let (dirs, of, at) = (dirs.clone(), partition.clone(), target.clone());
        let copy = blocking(move || dirs.create_future(&at, &of, clock::wall())).await?;
        tracing::info!(partition = %partition.name, "moves to {}", target.path().display());
        self.follow(partition, target, copy);
        Ok(())
    }

    /// Has a task bring the copy up to its log and to its place.
    fn follow(&mut self, partition: Arc<Partition>, target: Arc<Directory>, copy: Log) {
        partition.set_future(Some(FutureReplica::new(target.clone(), &copy)));
        let (end, ends) = watch::channel(None);
        let (id, index) = (partition.id, target.index());
        let task = tokio::spawn(Course::new(self.shared.clone(), partition, target, ends).run(copy));
        self.running.insert(id, Running { target: index, end, task });
    }

    async fn resume(&mut self) {
        let dirs = self.shared.parts.dirs.clone();
        let mut left = Vec::new();
        for (directory, found) in dirs.take_futures() {
            let all = self.shared.parts.partitions.all();
            let mut hosted = all.values();
            let is_old = found.topic_id.is_none();
            let of = hosted
                .find(|partition| is_of(&found, partition) || is_old && found.partition == partition.name);
            let of = of.cloned();
            let Some(partition) = of else {
                // Its log could not be opened. A later start may find it.
                left.push((directory, found));
                continue;
            };
            let is_there = partition.directory().index() == directory.index();
            // One without an id was only about to be made.
            if is_there || is_old || self.running.contains_key(&partition.id) {
                self.discard(directory, found).await;
                continue;
            }
            let (dirs, at, config) = (dirs.clone(), directory.clone(), partition.log_config());
            let opened = blocking(move || {
                let opened = dirs.open_future(&at, &found, config, clock::wall());
                opened.map_err(|error| (found, error))
            });
            match opened.await {
                Ok(copy) => {
                    let (path, end) = (directory.path().display(), copy.log_end());
                    tracing::info!(partition = %partition.name, "goes on moving to {path}, from offset {end}");
                    self.follow(partition, directory, copy);
                }
                Err((found, error)) => {
                    tracing::warn!("{} cannot be opened: {error}", found.path.display());
                    left.push((directory, found));
                }
            }
        }
        dirs.leave_futures(left);
    }

    /// Sets copies aside that were left from earlier, for there is going to be a new one.
    async fn discard_left(&self, partition: &Partition) {
        let dirs = &self.shared.parts.dirs;
        let (old, others) = dirs.take_futures().into_iter().partition(|(_, found)| is_of(found, partition));
        dirs.leave_futures(others);
        for (directory, found) in old {
            self.discard(directory, found).await;
        }
    }

    async fn discard(&self, directory: Arc<Directory>, found: PartitionDir) {
        let (dirs, checkpoints) = (self.shared.parts.dirs.clone(), self.shared.parts.checkpoints.clone());
        let retired = blocking(move || {
            dirs.forget(&directory, &found.partition);
            checkpoints.write_all();
            let retired = dirs.retire_found(&directory, &found);
            retired.map_err(|error| directory.fail(&format!("set {} aside", found.path.display()), &error))
        });
        if let Ok(Some(retired)) = retired.await {
            self.shared.remove(retired, 0);
        }
    }
}

impl Shared {
    /// Has the files of a log or of a copy removed after a while.
    fn remove(&self, retired: super::log_dirs::Retired, delay_ms: i64) {
        let _ = self.parts.chores.send(Chore::Remove { retired: vec![retired], delay_ms });
    }
}

fn is_of(found: &PartitionDir, partition: &Partition) -> bool {
    found.partition == partition.name && found.topic_id == Some(partition.id.topic_id)
}

/// Ends moves, and waits until they have.
async fn end_all(ending: Vec<Running>, how: End) {
    for running in &ending {
        running.end.send_replace(Some(how));
    }
    for running in ending {
        // What it panicked of was told.
        let _ = running.task.await;
    }
}
