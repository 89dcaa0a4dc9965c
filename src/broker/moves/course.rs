//! One move: the copy is brought up to the log again and again, the cluster is told where the partition will lie, then the shard
//! puts the copy in the log's place, and what it replaces is removed.
//!
//! Must not know of other moves. Invariants: the cluster believes in the new directory before the log is there (KIP-858): when
//! it fails from then on, the replica is judged by it. A move that ends without having come so far takes that back. While the
//! replica is given up for its damage, where it will lie is not told, and the log stays where it is rebuilt. Nothing that is set
//! aside is needed: of log and copy, the one that serves stays.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use super::super::assignments::Heard;
use super::super::blocking::blocking;
use super::super::clock;
use super::super::directory::Directory;
use super::super::messages::{Names, Promote, Promoted};
use super::super::partitions::{FutureReplica, Partition};
use super::approach::Approach;
use super::{MoveError, Shared, is_of};
use crate::storage::log::succession::{Advanced, CopyError};
use crate::storage::log::{Log, LogError};
use crate::storage::log_dir::PartitionDir;
use crate::types::DirectoryId;

/// So much is read and appended at once.
const CHUNK: usize = 1 << 20;
/// So many chunks go by until somebody looks whether the move is still wanted.
const CHUNKS: usize = 8;
/// So much of a copy is on its way to the disk at most.
const UNFLUSHED_MAX: usize = 32 << 20;
/// How often a move that has used up its limit looks whether that still holds.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The pause after a failure; each further one is twice as long.
const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Why a move ends before it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It is not wanted any more.
    Abandoned,
    /// The broker stops.
    Stopped,
    /// The log's directory or the copy's is out of service.
    Lost,
}

/// How a move begins.
#[derive(Debug)]
pub(super) enum Beginning {
    /// With an empty copy, once another move of the partition has ended.
    Anew { after: Option<JoinHandle<()>>, reply: oneshot::Sender<Result<(), MoveError>> },
    /// With a copy that was found at the start.
    Resumed(PartitionDir),
}

#[derive(Debug)]
pub(super) struct Course {
    shared: Arc<Shared>,
    partition: Arc<Partition>,
    source: Arc<Directory>,
    target: Arc<Directory>,
    ends: watch::Receiver<Option<End>>,
    /// The cluster may believe that the partition lies where the copy is.
    is_told: bool,
    pause: Duration,
    /// What was last said of why nothing is copied; nothing was copied since.
    said: Option<String>,
    approach: Approach,
    unflushed: usize,
    /// How often the log had been rebuilt when the copy was begun. `None`: it may have what is gone from the log.
    rebuilds: Option<u32>,
}

/// When what is copied is made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flush {
    Now,
    /// If the copy has all of the log by then.
    WhenClose,
    /// Together with the rest.
    Later,
}

/// What became of some chunks.
struct Stride {
    copy: Log,
    bytes: usize,
    /// The copy had all of the log at the last look, and all of that is on disk.
    is_close: bool,
    failure: Option<CopyError>,
}

impl Course {
    pub(super) fn new(
        shared: Arc<Shared>,
        partition: Arc<Partition>,
        target: Arc<Directory>,
        ends: watch::Receiver<Option<End>>,
    ) -> Course {
        let source = partition.directory();
        let (is_told, said, pause) = (false, None, PAUSE_MIN);
        let (approach, unflushed, rebuilds) = (Approach::new(), 0, None);
        Course {
            shared,
            partition,
            source,
            target,
            ends,
            is_told,
            pause,
            said,
            approach,
            unflushed,
            rebuilds,
        }
    }

    pub(super) async fn run(mut self, beginning: Beginning) {
        let copy = match beginning {
            Beginning::Anew { after, reply } => {
                if let Some(after) = after {
                    // What it panicked of was told.
                    let _ = after.await;
                }
                // The one before may have come so far that it lies elsewhere now.
                self.source = self.partition.directory();
                let (created, copy) = match self.create().await {
                    Ok(copy) => (Ok(()), copy),
                    Err(error) => (Err(error), None),
                };
                // Who asked may have gone away.
                let _ = reply.send(created);
                copy
            }
            Beginning::Resumed(found) => self.open(found).await,
        };
        let Some(copy) = copy else { return };
        match self.carry(copy).await {
            Ok(before) => self.finish(before).await,
            Err((end, copy)) => {
                // Where its name is may be known to nobody. Then it has failed together with the directory that was told.
                let is_there = self.partition.directory().index() == self.source.index();
                if self.is_told && end != End::Stopped && is_there {
                    self.tell_that_it_lies(self.source.id());
                }
                self.give_up(end, copy).await;
            }
        }
    }

    /// Makes the copy. `None`: the partition lies there already, or somebody has asked for something else meanwhile.
    async fn create(&mut self) -> Result<Option<Log>, MoveError> {
        if self.source.index() == self.target.index() {
            self.discard_left().await;
            return Ok(None);
        }
        let dirs = self.shared.parts.dirs.clone();
        match self.ended() {
            Some(End::Abandoned) if self.is_hosted() => return Ok(None),
            Some(End::Abandoned) => return Err(MoveError::NotHosted),
            Some(End::Stopped) => return Err(MoveError::ShuttingDown),
            Some(End::Lost) => return Err(MoveError::OutOfService),
            None if dirs.any_is_out_of_service() => return Err(MoveError::OutOfService),
            None => {}
        }
        self.discard_left().await;
        let (of, at) = (self.partition.clone(), self.target.clone());
        self.rebuilds = Some(of.rebuilds());
        let created = blocking(move || {
            if !dirs.is_free(&at, &of.name)? {
                return Err(MoveError::Taken);
            }
            Ok(dirs.create_future(&at, &of, clock::wall())?)
        });
        let copy = created.await?;
        tracing::info!(partition = %self.partition.name, "moves to {}", self.target.path().display());
        self.partition.set_future(Some(FutureReplica::new(self.target.clone(), &copy)));
        // Compaction that began before the copy was known has ended then, and none begins.
        self.shared.parts.partitions.settled(&self.partition.id).await;
        Ok(Some(copy))
    }

    /// Opens a copy that was found. `None`: it cannot be opened, and stays where it is.
    async fn open(&mut self, found: PartitionDir) -> Option<Log> {
        let (shared, dirs) = (self.shared.clone(), self.shared.parts.dirs.clone());
        let turn = tokio::select! {
            turn = shared.turns.acquire() => Some(turn),
            _ = self.ends.wait_for(Option::is_some) => None,
        };
        let Some(turn) = turn else {
            self.leave(found).await;
            return None;
        };
        let (at, config) = (self.target.clone(), self.partition.log_config());
        let opened = blocking(move || {
            let opened = dirs.open_future(&at, &found, config, clock::wall());
            opened.map_err(|error| {
                tracing::warn!("{} cannot be opened: {error}", found.path.display());
                dirs.leave_copy(&at, found);
            })
        });
        let opened = opened.await;
        drop(turn);
        let Ok(copy) = opened else {
            self.partition.set_future(None);
            return None;
        };
        let (path, end) = (self.target.path().display(), copy.log_end());
        tracing::info!(partition = %self.partition.name, "goes on moving to {path}, from offset {end}");
        let partition = &self.partition;
        partition.set_future(Some(FutureReplica::new(self.target.clone(), &copy)));
        self.shared.parts.partitions.settled(&partition.id).await;
        // Its log may have been compacted since the copy was made, here or where its records come from.
        let may_lack = partition.log_config().compact || partition.cleaned().is_some();
        self.rebuilds = Some(partition.rebuilds()).filter(|rebuilds| *rebuilds == 0 && !may_lack);
        Some(copy)
    }

    /// The move has ended before the copy was opened.
    async fn leave(&mut self, found: PartitionDir) {
        let (shared, target) = (self.shared.clone(), self.target.clone());
        if self.ended() == Some(End::Abandoned) {
            self.partition.set_future(None);
            blocking(move || shared.discard(vec![(target, found)])).await;
        } else {
            shared.parts.dirs.leave_copy(&target, found);
        }
    }

    /// Sets copies aside that were found and could not be opened.
    async fn discard_left(&self) {
        let (shared, of) = (self.shared.clone(), self.partition.clone());
        blocking(move || shared.discard(shared.parts.dirs.claim_copies(|found| is_of(found, &of)))).await;
    }

    /// Brings the copy into the log's place; returns the log that was there.
    async fn carry(&mut self, mut copy: Log) -> Result<Log, (End, Option<Log>)> {
        let shared = self.shared.clone();
        loop {
            if let Some(end) = self.ended() {
                return Err((end, Some(copy)));
            }
            if let Some(ms) = shared.throttle.exceeded_for_ms() {
                // Not for the whole time: the limit may be lifted meanwhile.
                self.rest(Duration::from_millis(u64::try_from(ms).unwrap_or(0)).min(LOOK_EVERY)).await;
                continue;
            }
            // Whoever has to wait for something else leaves the turn to others.
            let turn = tokio::select! {
                turn = shared.turns.acquire() => turn,
                _ = self.ends.wait_for(Option::is_some) => continue,
            };
            let stride = self.stride(copy).await;
            drop(turn);
            copy = stride.copy;
            shared.throttle.record(stride.bytes);
            if let Some(error) = stride.failure {
                self.note_failure(&copy, &error).await;
                continue;
            }
            self.note_lag(&copy);
            if stride.bytes > 0 {
                (self.said, self.pause) = (None, PAUSE_MIN);
            }
            if !stride.is_close {
                continue;
            }
            // A replica that was given up meanwhile was taken back where its log is.
            if !self.is_told || shared.is_elsewhere((self.partition.id, self.target.id())) {
                self.tell().await;
                continue;
            }
            match self.take_place(copy).await {
                Ok(before) => return Ok(before),
                Err(Some(behind)) => copy = behind,
                Err(None) => return Err((End::Stopped, None)),
            }
        }
    }

    fn ended(&self) -> Option<End> {
        let is_lost = !self.source.is_online() || !self.target.is_online();
        let ended = *self.ends.borrow();
        // It may have been let go of between the look for moves to end and the beginning of this one.
        let is_gone = !self.is_hosted();
        let ended = ended.or(is_lost.then_some(End::Lost)).or(is_gone.then_some(End::Abandoned));
        // Nobody could end it any more.
        ended.or(self.ends.has_changed().is_err().then_some(End::Stopped))
    }

    /// Whether it is still this one that the broker hosts.
    fn is_hosted(&self) -> bool {
        let here = self.shared.parts.partitions.get(&self.partition.id);
        here.is_some_and(|here| Arc::ptr_eq(&here, &self.partition))
    }

    /// Has the cluster told where the partition lies. When it was let go of, that says nothing of the next one.
    fn tell_that_it_lies(&self, directory: DirectoryId) {
        if self.is_hosted() {
            self.shared.tell((self.partition.id, directory));
        }
    }

    /// Sleeps, unless the move ends.
    async fn rest(&mut self, time: Duration) {
        let _ = tokio::time::timeout(time, self.ends.wait_for(Option::is_some)).await;
    }

    /// Copies some chunks.
    async fn stride(&mut self, copy: Log) -> Stride {
        let (partition, target) = (self.partition.clone(), self.target.clone());
        // With a limit, so little at a time that it is kept from second to second.
        let (chunk, chunks) = match self.shared.throttle.rate() {
            Some(rate) => (CHUNK.min(usize::try_from(rate).unwrap_or(CHUNK)), 1),
            None => (CHUNK, CHUNKS),
        };
        let flush = if self.unflushed >= UNFLUSHED_MAX { Flush::Now } else { Flush::WhenClose };
        let rebuilds = Some(partition.rebuilds());
        if rebuilds != self.rebuilds {
            let stride = blocking(move || begin_anew(copy, &partition, &target)).await;
            self.rebuilds = if stride.failure.is_none() { rebuilds } else { self.rebuilds };
            return stride;
        }
        let stride = blocking(move || copy_some(copy, &partition, &target, (chunk, chunks), flush)).await;
        let is_synced = flush == Flush::Now || stride.is_close;
        self.unflushed = if is_synced { 0 } else { self.unflushed + stride.bytes };
        stride
    }

    /// Copies what was appended while the copy was synced and waited for its turn. To sync it again would take as long again.
    async fn catch_up(&mut self, copy: Log) -> Stride {
        let (partition, target) = (self.partition.clone(), self.target.clone());
        if self.shared.throttle.rate().is_some() || self.rebuilds != Some(partition.rebuilds()) {
            return Stride { copy, bytes: 0, is_close: true, failure: None };
        }
        let size = (CHUNK, UNFLUSHED_MAX / CHUNK);
        let stride = blocking(move || copy_some(copy, &partition, &target, size, Flush::Later)).await;
        self.unflushed += stride.bytes;
        self.shared.throttle.record(stride.bytes);
        stride
    }

    /// Who does not limit moves should hear when one does not come to an end.
    fn note_lag(&mut self, copy: &Log) {
        let lacks = self.partition.view().log_end.since(copy.log_end()).max(0);
        if self.approach.lacks(lacks, clock::monotonic()) && self.shared.throttle.rate().is_none() {
            let path = self.target.path().display();
            tracing::warn!(
                partition = %self.partition.name,
                "the copy in {path} comes no closer: as much is appended as is copied, and {lacks} records are missing"
            );
        }
    }

    /// A full disk, or a log that was cut under the reader, is tried again, and so is one that is damaged: it may be rebuilt. A copy
    /// that failed takes its directory along.
    async fn note_failure(&mut self, copy: &Log, error: &CopyError) {
        let name = &self.partition.name;
        if copy.failure().is_some() {
            self.target.fail(&format!("copy {name} there"), error);
            return;
        }
        if let CopyError::Source(error) = error {
            self.partition.note_unreadable(error);
        }
        let why = error.to_string();
        if self.said.as_ref() != Some(&why) {
            tracing::warn!(partition = %name, "cannot be moved to {} yet: {why}", self.target.path().display());
        }
        self.said = Some(why);
        self.wait().await;
    }

    /// Pauses, longer each time that nothing was copied since.
    async fn wait(&mut self) {
        self.rest(self.pause).await;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }

    /// Has the cluster know where the partition is about to lie.
    async fn tell(&mut self) {
        if self.shared.is_lost(&self.partition.id) {
            // Where it lies is for others to tell when it is whole.
            self.wait().await;
            return;
        }
        // From now on it may.
        self.is_told = true;
        let shared = self.shared.clone();
        let told = shared.tell_and_wait((self.partition.id, self.target.id()));
        let heard = tokio::select! {
            heard = told => heard,
            _ = self.ends.wait_for(Option::is_some) => return,
        };
        match heard {
            Some(Heard::Placed) => {}
            Some(Heard::GivenUp) => {
                self.is_told = false;
                self.wait().await;
            }
            // Nobody makes reports any more: the broker is about to stop.
            None => drop(self.ends.wait_for(Option::is_some).await),
        }
    }

    /// Has the shard put the copy in the place of the log. It comes back while it is too far behind; it does not when the shard
    /// has ended.
    async fn take_place(&mut self, copy: Log) -> Result<Log, Option<Log>> {
        let shared = self.shared.clone();
        let promotion = tokio::select! {
            promotion = shared.promotions.acquire() => promotion,
            _ = self.ends.wait_for(Option::is_some) => return Err(Some(copy)),
        };
        let Stride { copy, failure, .. } = self.catch_up(copy).await;
        let promoted = match failure {
            None => self.promote(copy).await,
            Some(error) => Some(Promoted::Failed(copy, error)),
        };
        // Whoever has to wait now keeps nobody else waiting.
        drop(promotion);
        match promoted {
            None => Err(None),
            Some(Promoted::Done(before)) => Ok(before),
            Some(Promoted::Behind(copy, missing)) => {
                self.note_refusal(missing);
                Err(Some(copy))
            }
            Some(Promoted::Failed(copy, error)) => {
                self.note_failure(&copy, &error).await;
                Err(Some(copy))
            }
            Some(Promoted::Gone(copy)) => {
                // Somebody is about to end the move, a directory is out of service, or the replica is rebuilt.
                self.rest(PAUSE_MIN).await;
                Err(Some(copy))
            }
        }
    }

    fn note_refusal(&mut self, missing: usize) {
        if self.approach.refused() {
            let max = self.approach.missing_max();
            tracing::warn!(
                partition = %self.partition.name,
                "so much is appended that the copy always lacks some, {missing} bytes now: producers wait until up to {max} are \
                 copied when it takes its place"
            );
        }
    }

    async fn promote(&self, copy: Log) -> Option<Promoted> {
        let parts = &self.shared.parts;
        let name = &self.partition.name;
        let names = Names {
            log: parts.dirs.path_in(&self.target, name),
            aside: parts.dirs.path_aside(&self.source, name, &copy),
        };
        let promote = |reply| Promote {
            partition: self.partition.clone(),
            future: copy,
            directory: self.target.clone(),
            names,
            rebuilds: self.rebuilds.unwrap_or_default(),
            missing_max: self.approach.missing_max(),
            reply,
        };
        parts.partitions.promote(promote).await
    }

    /// The partition lies where it should. What is left of it where it was is set aside.
    async fn finish(self, before: Log) {
        // It was told before. If it was given up and taken back in between, that holds no more.
        self.tell_that_it_lies(self.target.id());
        let Course { shared, partition, source, target, .. } = self;
        tracing::info!(partition = %partition.name, "moved from {} to {}", source.path().display(), target.path().display());
        let delay_ms = before.config().file_delete_delay_ms;
        let of = shared.clone();
        let retired = blocking(move || {
            of.parts.dirs.forget(&source, &partition.name);
            of.parts.checkpoints.write_all();
            if !source.is_online() {
                return None;
            }
            // What it syncs is of the log that there was.
            source.flush.await_running(&partition.id);
            Some(of.parts.dirs.as_retired(&source, &before))
        });
        if let Some(retired) = retired.await {
            shared.remove(retired, delay_ms);
        }
    }

    /// The log stays where it is. The copy is set aside, or kept for a later process.
    async fn give_up(self, end: End, copy: Option<Log>) {
        let Course { shared, partition, target, .. } = self;
        if end != End::Stopped {
            tracing::warn!(partition = %partition.name, "does not move to {}: {end:?}", target.path().display());
            partition.set_future(None);
        }
        let Some(mut copy) = copy else { return };
        let delay_ms = copy.config().file_delete_delay_ms;
        let of = shared.clone();
        let retired = blocking(move || {
            if !target.is_online() {
                return None;
            }
            let (doing, result) = if end == End::Abandoned {
                of.parts.dirs.forget(&target, &partition.name);
                of.parts.checkpoints.write_all();
                ("set the copy aside", of.parts.dirs.retire_log(&target, &partition, &copy))
            } else {
                let closed = match copy.close() {
                    // The next start has to check it.
                    Err(LogError::DiskFull) => {
                        of.parts.dirs.note_incomplete(&target, &partition.name);
                        Ok(())
                    }

                    closed => closed,
                };
                ("close the copy", closed.map(|()| None).map_err(std::io::Error::other))
            };
            let result =
                result.inspect_err(|error| target.fail(&format!("{doing} of {}", partition.name), error));
            result.ok().flatten()
        });
        if let Some(retired) = retired.await {
            shared.remove(retired, delay_ms);
        }
    }
}

fn is_full(error: &CopyError) -> bool {
    matches!(error, CopyError::Copy(LogError::DiskFull))
}

/// The log has its records from its leader again, who may have compacted them; and of what was damaged the copy may have more than
/// was noticed.
fn begin_anew(mut copy: Log, partition: &Partition, target: &Directory) -> Stride {
    let emptied = copy.truncate_fully_and_start_at(partition.view().log_start, clock::wall());
    doom(&mut copy, target);
    Stride { copy, bytes: 0, is_close: false, failure: emptied.err().map(CopyError::Copy) }
}

/// Has the segments removed that were taken out of a copy. Nobody reads it.
fn doom(copy: &mut Log, target: &Directory) {
    if let Some(doomed) = copy.take_doomed() {
        target.doom(doomed, clock::monotonic());
    }
}

fn copy_some(
    copy: Log,
    partition: &Partition,
    target: &Directory,
    (chunk, chunks): (usize, usize),
    flush: Flush,
) -> Stride {
    let mut stride = Stride { copy, bytes: 0, is_close: false, failure: None };
    stride.copy.update_config(partition.log_config());
    let result = stride.advance(partition, target, chunk, chunks);
    doom(&mut stride.copy, target);
    let result = result.and_then(|()| {
        let is_due = flush == Flush::Now || flush == Flush::WhenClose && stride.is_close;
        if is_due { stride.copy.flush().map_err(CopyError::Copy) } else { Ok(()) }
    });
    stride.failure = result.err();
    stride
}

impl Stride {
    fn advance(
        &mut self,
        partition: &Partition,
        target: &Directory,
        chunk: usize,
        chunks: usize,
    ) -> Result<(), CopyError> {
        for _ in 0..chunks {
            let view = partition.view();
            let may_come = chunk.min(usize::try_from(view.size_in_bytes()).unwrap_or(chunk));
            let is_behind = self.copy.log_end() < view.log_end;
            if is_behind && !target.admits(may_come, clock::monotonic()) {
                return Err(LogError::DiskFull.into());
            }
            let advanced = self.copy.advance_to(&view, chunk, clock::wall());
            let Advanced { bytes, is_void } = advanced.inspect_err(|error| {
                if is_full(error) {
                    target.note_full(clock::monotonic());
                }
            })?;
            self.bytes += bytes;
            // What was appended since is little, or the next stride is as large as this one.
            // And where nothing more is to be had, the shard knows why.
            self.is_close = !is_void && (bytes == 0 || self.copy.log_end() == view.log_end && bytes < chunk);
            if self.is_close {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::super::flusher::DEFAULT_THREADS;
    use super::super::super::rig::{Rig, id, lead, leave_free, new_host, open_dir, records};
    use super::*;
    use crate::replica::Acks;
    use crate::storage::disk::Disk;
    use crate::storage::log::LogConfig;
    use crate::storage::sim_disk::SimDisk;
    use crate::types::Offset;

    const RESERVE: u64 = 50_000;
    const P: crate::types::TopicIdPartition = id(1, 0);

    #[test]
    fn a_copy_leaves_the_reserve_alone_and_goes_on_when_there_is_room() {
        let mut rig = Rig::new(Arc::new(SimDisk::new()), Path::new("/data"));
        let partition = rig.host(P, LogConfig::default(), lead(1, &[1]));
        let value = "v".repeat(1_000);
        for _ in 0..60 {
            let _ = rig.produce(Some(Acks::All), vec![(P, records(&[&value]))]);
            rig.flush();
        }
        assert_eq!(partition.view().log_end, Offset(60));
        let other = SimDisk::new();
        let disk: Arc<dyn Disk> = Arc::new(other.clone());
        let target =
            Arc::new(Directory::new(1, open_dir(&disk, Path::new("/other")), Vec::new(), DEFAULT_THREADS));
        let mut copy = new_host(&target, P, LogConfig::default(), lead(1, &[1])).log;
        target.keep_free(RESERVE);
        leave_free(&other, RESERVE + 20_000);
        let free = || other.space(Path::new("/other")).expect("known").free;
        let stride = |copy| copy_some(copy, &partition, &target, (3_000, 8), Flush::WhenClose);
        loop {
            let Stride { copy: after, failure, .. } = stride(copy);
            copy = after;
            if let Some(failure) = failure {
                assert!(is_full(&failure), "{failure}");
                break;
            }
        }
        let came = copy.log_end();
        assert!(came > Offset(10) && came < Offset(60), "{came}");
        // The file of the epochs is not counted.
        assert!(free() >= RESERVE - 200 && target.is_short() && target.is_online());
        // It is asked again and again, and costs nothing.
        let before = free();
        for _ in 0..3 {
            let Stride { copy: after, failure, bytes, .. } = stride(copy);
            copy = after;
            assert!(failure.as_ref().is_some_and(is_full) && bytes == 0);
        }
        assert_eq!((copy.log_end(), free()), (came, before));
        leave_free(&other, 4 * RESERVE);
        target.measure(0, clock::monotonic());
        for _ in 0..10 {
            let Stride { copy: after, failure, .. } = stride(copy);
            copy = after;
            assert!(failure.is_none(), "{failure:?}");
        }
        assert_eq!(copy.log_end(), Offset(60));
    }

    #[test]
    fn a_copy_that_meets_the_end_of_the_disk_says_so_to_the_directory() {
        let mut rig = Rig::new(Arc::new(SimDisk::new()), Path::new("/data"));
        let partition = rig.host(P, LogConfig::default(), lead(1, &[1]));
        let _ = rig.produce(Some(Acks::All), vec![(P, records(&["a", "b"]))]);
        rig.flush();
        let other = SimDisk::new();
        let disk: Arc<dyn Disk> = Arc::new(other.clone());
        let target =
            Arc::new(Directory::new(1, open_dir(&disk, Path::new("/other")), Vec::new(), DEFAULT_THREADS));
        let copy = new_host(&target, P, LogConfig::default(), lead(1, &[1])).log;
        // Nothing is kept, so everything is tried.
        leave_free(&other, 0);
        let stride = copy_some(copy, &partition, &target, (3_000, 8), Flush::WhenClose);
        assert!(stride.failure.as_ref().is_some_and(is_full), "{:?}", stride.failure);
        assert!(target.is_short() && target.is_online());
    }
}
