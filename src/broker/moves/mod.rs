//! Moves of partitions from one log directory to another while they serve (KIP-113): which are under way, and who may begin
//! or end one. `course` is what happens in a single one.
//!
//! A handle, cheap to clone; behind it is a task for each move, which does all that a disk may keep waiting. Must not know requests
//! or their errors. Invariants: a partition that is hosted has one move at most, and one copy: the next one begins when the one
//! before has ended, with its copy set aside; nobody but who asks for a move waits for one.

mod approach;
mod course;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use super::assignments::{Heard, Placed, Report};
use super::checkpoints::Checkpoints;
use super::directory::Directory;
use super::dynamic_config::DynamicConfig;
use super::log_dirs::{LogDirs, OpenError};
use super::partitions::{FutureReplica, Partition, Partitions};
use super::reconciler::Chore;
use super::throttles::ReplicationThrottle;
use crate::controller::MetadataHandle;
use crate::metadata::Image;
use crate::storage::log_dir::PartitionDir;
use crate::types::{DirectoryId, NodeId, TopicIdPartition, TopicPartition, directory_id};
use course::{Beginning, Course, End};

/// How long a stop waits for moves to end.
const STOP_WAIT: Duration = Duration::from_secs(5);

/// Why a partition is not moved.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    #[error("this broker does not host the partition")]
    NotHosted,
    /// A copy of an earlier move may lie there.
    #[error("a log directory is out of service")]
    OutOfService,
    /// It could not be opened, or is none of ours.
    #[error("there is something of the partition's name in the directory")]
    Taken,
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("the broker is shutting down")]
    ShuttingDown,
}

/// What moves work with.
#[derive(Debug)]
pub struct MoveParts {
    pub me: NodeId,
    pub metadata: MetadataHandle,
    pub partitions: Partitions,
    pub dirs: Arc<LogDirs>,
    pub checkpoints: Arc<Checkpoints>,
    pub config: Arc<DynamicConfig>,
    pub chores: mpsc::UnboundedSender<Chore>,
}

/// The same, with what all moves share.
#[derive(Debug)]
struct Shared {
    parts: MoveParts,
    throttle: ReplicationThrottle,
    /// So many moves copy at a time.
    turns: Semaphore,
    /// One copy at a time takes the place of its log: its shard waits for the disk, and with it whoever else it has.
    promotions: Semaphore,
}

/// A handle on the moves.
#[derive(Clone, Debug)]
pub struct Moves {
    shared: Arc<Shared>,
    table: Arc<Mutex<Table>>,
}

#[derive(Debug, Default)]
struct Table {
    running: HashMap<TopicIdPartition, Running>,
    /// Those that were told to end and that nobody waits for.
    ending: Vec<Running>,
    has_stopped: bool,
}

#[derive(Debug)]
struct Running {
    partition: TopicPartition,
    target: Arc<Directory>,
    end: watch::Sender<Option<End>>,
    task: JoinHandle<()>,
}

impl Moves {
    pub fn new(parts: MoveParts) -> Moves {
        let threads = parts.config.latest().broker.num_replica_alter_log_dirs_threads;
        let threads =
            threads.and_then(|threads| usize::try_from(threads).ok()).filter(|threads| *threads > 0);
        let turns = Semaphore::new(threads.unwrap_or(parts.dirs.directories().len()).max(1));
        let throttle = ReplicationThrottle::of_moves(parts.config.clone());
        let shared = Shared { parts, throttle, turns, promotions: Semaphore::new(1) };
        Moves { shared: Arc::new(shared), table: Arc::default() }
    }

    /// Begins to move a partition to a log directory, unless it lies there or is on its way there. A move to elsewhere ends before.
    pub async fn begin(&self, id: TopicIdPartition, target: Arc<Directory>) -> Result<(), MoveError> {
        let (reply, begun) = oneshot::channel();
        {
            let mut table = self.table();
            if table.has_stopped {
                return Err(MoveError::ShuttingDown);
            }
            let partition = self.shared.parts.partitions.get(&id).ok_or(MoveError::NotHosted)?;
            if table.running.get(&id).is_some_and(|running| running.target.index() == target.index()) {
                return Ok(());
            }
            let before = table.running.remove(&id);
            if let Some(before) = &before {
                before.end.send_replace(Some(End::Abandoned));
            }
            let beginning = Beginning::Anew { after: before.map(|before| before.task), reply };
            self.follow(&mut table, partition, target, beginning);
        }
        begun.await.unwrap_or(Err(MoveError::ShuttingDown))
    }

    /// Goes on with the moves that the end of an earlier process has interrupted.
    pub fn resume(&self) {
        let mut table = self.table();
        let partitions = self.shared.parts.partitions.all();
        let old = |found: &PartitionDir, partition: &Partition| {
            // One without an id was only about to be made.
            found.topic_id.is_none() && found.partition == partition.name
        };
        let of = |found: &PartitionDir| {
            partitions.values().find(|partition| is_of(found, partition) || old(found, partition)).cloned()
        };
        let mut unwanted = Vec::new();
        // Of others the log could not be opened. A later start may find it.
        for (directory, found) in self.shared.parts.dirs.claim_copies(|found| of(found).is_some()) {
            let Some(partition) = of(&found) else { continue };
            let is_there = partition.directory().index() == directory.index();
            if is_there || found.topic_id.is_none() || table.running.contains_key(&partition.id) {
                unwanted.push((directory, found));
            } else {
                partition.set_future(Some(FutureReplica::found(directory.clone())));
                self.follow(&mut table, partition, directory, Beginning::Resumed(found));
            }
        }
        drop(table);
        if !unwanted.is_empty() {
            let shared = self.shared.clone();
            drop(tokio::task::spawn_blocking(move || shared.discard(unwanted)));
        }
    }

    /// Has the moves of partitions end that are about to be let go of. They cannot take their logs' places once these are gone.
    pub fn abandon<'a>(&self, ids: impl Iterator<Item = &'a TopicIdPartition>) {
        let mut table = self.table();
        for id in ids {
            if let Some(running) = table.running.remove(id) {
                running.end.send_replace(Some(End::Abandoned));
                table.ending.push(running);
            }
        }
    }

    /// Ends all moves such that a later process can go on with them. None begins any more. A disk that hangs holds nobody up for
    /// long: what lies there is then not taken for closed.
    pub async fn stop(&self) {
        let ending: Vec<Running> = {
            let mut table = self.table();
            table.has_stopped = true;
            let Table { running, ending, .. } = &mut *table;
            running.drain().map(|(_, running)| running).chain(ending.drain(..)).collect()
        };
        for running in &ending {
            running.end.send_if_modified(|end| end.replace(end.unwrap_or(End::Stopped)).is_none());
        }
        let until = tokio::time::Instant::now() + STOP_WAIT;
        for running in ending {
            // What it panicked of was told.
            if tokio::time::timeout_at(until, running.task).await.is_err() {
                self.shared.parts.dirs.note_incomplete(&running.target, &running.partition);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn promotions(&self) -> &Semaphore {
        &self.shared.promotions
    }

    /// Has a task bring the copy up to its log and to its place.
    fn follow(
        &self,
        table: &mut Table,
        partition: Arc<Partition>,
        target: Arc<Directory>,
        beginning: Beginning,
    ) {
        let (end, ends) = watch::channel(None);
        let (id, name) = (partition.id, partition.name.clone());
        let course = Course::new(self.shared.clone(), partition, target.clone(), ends);
        let task = tokio::spawn(course.run(beginning));
        table.running.insert(id, Running { partition: name, target, end, task });
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.running.retain(|_, running| !running.task.is_finished());
        table.ending.retain(|running| !running.task.is_finished());
        table
    }
}

impl Shared {
    /// Sets copies aside that nobody goes on with.
    fn discard(&self, copies: Vec<(Arc<Directory>, PartitionDir)>) {
        let MoveParts { dirs, checkpoints, .. } = &self.parts;
        for (directory, found) in copies {
            dirs.forget(&directory, &found.partition);
            checkpoints.write_all();
            match dirs.retire_found(&directory, &found) {
                Ok(retired) => retired.into_iter().for_each(|retired| self.remove(retired, 0)),
                Err(error) => directory.fail(&format!("set {} aside", found.path.display()), &error),
            }
        }
    }

    /// Has the files of a log or of a copy removed after a while.
    fn remove(&self, retired: super::log_dirs::Retired, delay_ms: i64) {
        let _ = self.parts.chores.send(Chore::Remove { retired: vec![retired], delay_ms });
    }

    /// Has the cluster told where a partition lies, some time.
    fn tell(&self, placed: Placed) {
        let _ = self.parts.chores.send(Chore::ReportPlacement(Report::of(vec![placed])));
    }

    /// Has it told, and waits until it has been heard. `None` when the broker stops before.
    async fn tell_and_wait(&self, placed: Placed) -> Option<Heard> {
        let (report, heard) = Report::awaited(placed);
        let _ = self.parts.chores.send(Chore::ReportPlacement(report));
        heard.await.ok()
    }

    /// Where the metadata has a partition of this broker.
    fn named(&self, image: &Image, id: &TopicIdPartition) -> Option<DirectoryId> {
        image.topics.partition(id.topic_id, id.partition)?.directory(self.parts.me)
    }

    /// Whether it has it in no directory, for it was given up or its log was away.
    fn is_lost(&self, id: &TopicIdPartition) -> bool {
        self.named(&self.parts.metadata.image(), id) == Some(directory_id::LOST)
    }

    /// Whether the metadata has a partition of this broker elsewhere than in the log directory, or in none.
    fn is_elsewhere(&self, (id, directory): Placed) -> bool {
        let image = self.parts.metadata.image();
        let named = self.named(&image, &id);
        image.metadata_version().has_directories() && named.is_some_and(|named| named != directory)
    }
}

fn is_of(found: &PartitionDir, partition: &Partition) -> bool {
    found.partition == partition.name && found.topic_id == Some(partition.id.topic_id)
}
