//! One move: the copy is brought up to the log again and again, the cluster is told where the partition will lie, then the shard
//! puts the copy in the log's place, and what it replaces is set aside.
//!
//! Must not know of other moves. Invariants: the cluster believes in the new directory before the log is there (KIP-858): when
//! it fails from then on, the replica is judged by it. A move that ends without having come so far takes that back. Nothing that
//! is set aside is needed: of log and copy, the one that serves stays.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::super::blocking::blocking;
use super::super::clock;
use super::super::directory::Directory;
use super::super::messages::Promoted;
use super::super::partitions::Partition;
use super::super::promotion::MISSING_MAX;
use super::Shared;
use crate::storage::log::succession::{Advanced, CopyError};
use crate::storage::log::{Log, LogError};

/// So much is read and appended at once.
const CHUNK: usize = 1 << 20;
/// So many chunks go by until somebody looks whether the move is still wanted.
const CHUNKS: usize = 8;
/// So much of a copy is on its way to the disk at most.
const UNFLUSHED_MAX: usize = 32 << 20;
/// What a copy may lack of a log to which much is appended, when nothing less was ever missing.
const MISSING_AT_LAST: usize = 64 << 20;
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
    missing_max: usize,
    unflushed: usize,
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
        let (is_told, pause, missing_max, unflushed) = (false, PAUSE_MIN, MISSING_MAX, 0);
        Course { shared, partition, source, target, ends, is_told, pause, missing_max, unflushed }
    }

    pub(super) async fn run(mut self, copy: Log) {
        match self.carry(copy).await {
            Ok(before) => self.finish(before).await,
            Err((end, copy)) => {
                if self.is_told && end != End::Stopped {
                    self.shared.parts.assignments.tell(vec![(self.partition.id, self.source.id())]);
                }
                self.give_up(end, copy).await;
            }
        }
    }

    /// Brings the copy into the log's place; returns the log that was there.
    async fn carry(&mut self, mut copy: Log) -> Result<Log, (End, Option<Log>)> {
        let shared = self.shared.clone();
        let turn = tokio::select! {
            turn = shared.turns.acquire() => turn.ok(),
            _ = self.ends.wait_for(Option::is_some) => None,
        };
        loop {
            if let Some(end) = self.ended(turn.is_none()) {
                return Err((end, Some(copy)));
            }
            if let Some(ms) = shared.throttle.exceeded_for_ms() {
                // Not for the whole time: the limit may be lifted meanwhile.
                self.rest(Duration::from_millis(u64::try_from(ms).unwrap_or(0)).min(LOOK_EVERY)).await;
                continue;
            }
            let stride = self.stride(copy).await;
            copy = stride.copy;
            shared.throttle.record(stride.bytes);
            if let Some(error) = stride.failure {
                self.note_failure(&copy, &error).await;
                continue;
            }
            if !stride.is_close {
                continue;
            }
            if !self.is_told {
                self.tell().await;
                continue;
            }
            match self.promote(copy).await {
                Ok(before) => return Ok(before),
                Err(Some(behind)) => copy = behind,
                Err(None) => return Err((End::Stopped, None)),
            }
        }
    }

    fn ended(&self, has_no_turn: bool) -> Option<End> {
        let is_lost = !self.source.is_online() || !self.target.is_online();
        let ended = *self.ends.borrow();
        ended.or(is_lost.then_some(End::Lost)).or(has_no_turn.then_some(End::Stopped))
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
        let must_flush = self.unflushed >= UNFLUSHED_MAX;
        let stride = blocking(move || copy_some(copy, &partition, &target, chunk, chunks, must_flush)).await;
        self.unflushed = if must_flush || stride.is_close { 0 } else { self.unflushed + stride.bytes };
        stride
    }

    /// A full disk, or a log that was cut under the reader, is tried again. A copy that failed takes its directory along.
    async fn note_failure(&mut self, copy: &Log, error: &CopyError) {
        let name = &self.partition.name;
        if copy.failure().is_some() {
            self.target.fail(&format!("copy {name} there"), error);
            return;
        }
        tracing::warn!(partition = %name, "cannot be moved to {} yet: {error}", self.target.path().display());
        self.rest(self.pause).await;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }

    /// Has the cluster know where the partition is about to lie.
    async fn tell(&mut self) {
        self.is_told = true;
        let assignments = self.shared.parts.assignments.clone();
        let told = assignments.tell_and_wait((self.partition.id, self.target.id()));
        let is_heard = tokio::select! {
            is_heard = told => is_heard,
            _ = self.ends.wait_for(Option::is_some) => false,
        };
        if !is_heard {
            // When nobody makes reports any more, the broker is about to stop.
            let _ = self.ends.wait_for(Option::is_some).await;
        }
    }

    /// Has the shard put the copy in the place of the log. It comes back while it is too far behind; it does not when the shard
    /// has ended.
    async fn promote(&mut self, copy: Log) -> Result<Log, Option<Log>> {
        let parts = &self.shared.parts;
        let path = parts.dirs.path_in(&self.target, &self.partition.name);
        let (id, target, missing_max) = (self.partition.id, self.target.clone(), self.missing_max);
        match parts.partitions.promote(id, copy, target, path, missing_max).await {
            None => Err(None),
            Some(Promoted::Done(before)) => Ok(before),
            Some(Promoted::Behind(copy)) => {
                self.missing_max = (self.missing_max * 2).min(MISSING_AT_LAST);
                Err(Some(copy))
            }
            Some(Promoted::Failed(copy, error)) => {
                self.note_failure(&copy, &error).await;
                Err(Some(copy))
            }
            Some(Promoted::Gone(copy)) => {
                // Somebody is about to end the move, or a directory is out of service.
                self.rest(PAUSE_MIN).await;
                Err(Some(copy))
            }
        }
    }

    /// The partition lies where it should. What is left of it where it was is set aside.
    async fn finish(self, before: Log) {
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
            source.flush.forget(&partition.id);
            let retired = of.parts.dirs.retire_log(&source, &partition, &before);
            let name = &partition.name;
            retired.inspect_err(|error| source.fail(&format!("set {name} aside"), error)).ok().flatten()
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

fn copy_some(
    copy: Log,
    partition: &Partition,
    target: &Directory,
    chunk: usize,
    chunks: usize,
    must_flush: bool,
) -> Stride {
    let mut stride = Stride { copy, bytes: 0, is_close: false, failure: None };
    stride.copy.update_config(partition.log_config());
    let result = stride.advance(partition, target, chunk, chunks);
    let result = result.and_then(|()| {
        if must_flush || stride.is_close { stride.copy.flush().map_err(CopyError::Copy) } else { Ok(()) }
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
            let Advanced { bytes, doomed } = self.copy.advance_to(&view, chunk, clock::wall())?;
            if let Some(doomed) = doomed {
                // Nobody reads a copy.
                target.doom(doomed, clock::monotonic());
            }
            self.bytes += bytes;
            // What was appended since is little, or the next stride is as large as this one.
            // And where nothing more is to be had, the shard knows why.
            self.is_close = bytes == 0 || self.copy.log_end() == view.log_end && bytes < chunk;
            if self.is_close {
                break;
            }
        }
        Ok(())
    }
}
