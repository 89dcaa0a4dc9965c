//! One partition's log. `Log` is its single writer; readers hold a `LogView`. Knows nothing of replication: the high
//! watermark is told to it.
//!
//! The offset ruler, drawn in `Ruler` and asserted in `Log::draw` alone:
//!
//! ```text
//!   log_start       last_stable      high_watermark      log_end
//!       |  no open      |  some open       |  not on enough  |
//!       |  transactions |  transaction     |  replicas yet   |  -> next record
//!       +---------------+------------------+-----------------+
//!   ... on disk for good ... | flushed ... in the page cache ...
//! ```
//!
//! `log_start <= last_stable <= high_watermark <= log_end`, and `flushed <= log_end` independently of the others: the
//! replica core decides whether the high watermark may pass what is flushed.
//!
//! Invariants: offsets grow; a view is published after every change; after a write or a sync has failed, the log takes no
//! more changes (`Log::failure`).

mod append;
mod flush;

pub mod compaction;

pub mod config;
pub mod epoch_cache;
pub mod names;
pub mod producer_state;
pub mod view;
pub mod read;
pub mod tail_cache;
pub mod txn_index;
pub mod validate;

mod batch_scan;
mod damage;
mod epoch_recovery;
mod indexing;
mod index_file;
mod lazy_file;
mod mend;
pub mod succession;
mod offset_index;
mod open_files;
mod open;
mod recovery;
mod retention;
mod roll;
mod search;
mod segment;
mod sight;
mod snapshots;
mod time_index;
mod truncate;
mod unchecked;
pub mod verify;
pub mod dump;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod failure_tests;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use arc_swap::ArcSwap;
use thiserror::Error;

pub use append::{AppendError, Appended, Origin};
pub use config::{CompressionPolicy, LogConfig};
pub use damage::Damage;
pub use epoch_cache::{EpochCache, EpochEntry};
use flush::{Changes, LogId};
pub use flush::{FlushWork, Flushed};
use mend::Mended;
pub use mend::{Looked, Patch, Progress, Unfit, Wound};
pub use open::OpenArgs;
pub use open_files::{Budgets, OpenFiles};
pub use producer_state::ActiveProducer;
pub use read::ColdRead;
pub use recovery::Recovered;
pub use retention::Retained;
pub use search::Found;
pub use truncate::Doomed;
pub use txn_index::AbortedTxn;
pub use unchecked::{Amount, Unchecked, to_check};
pub use view::{LogView, LogViews, ReadError, ReadPlan};

use crate::fault::{self, Fault};
use crate::storage::checkpoint::OffsetFiles;
use crate::storage::disk;
use crate::types::{LeaderEpoch, Offset, TimestampMs, TopicPartition};
use lazy_file::Place;
use producer_state::{FirstBatch, Guard, ProducerError, ProducerState};
use segment::Segment;
use snapshots::Snapshots;
use tail_cache::TailCache;

/// Why a log cannot be changed or opened.
#[derive(Clone, Debug, Error)]
pub enum LogError {
    /// An earlier write or sync failed; what is on disk is unknown until the log is opened again.
    #[error("the log is out of service: {0}")]
    Poisoned(Arc<str>),
    /// There is no room; the log is as it was before.
    #[error("no space is left on the device")]
    DiskFull,
    #[error("{what}: {error}")]
    Io { what: Arc<str>, error: Arc<io::Error> },
    #[error("offset {offset} is outside of {from} to {to}")]
    OutOfRange { offset: Offset, from: Offset, to: Offset },
}

impl LogError {
    pub(super) fn io(doing: &str, dir: &Path, error: io::Error) -> LogError {
        if disk::is_full(&error) {
            return LogError::DiskFull;
        }
        LogError::Io { what: format!("{doing} {}", dir.display()).into(), error: Arc::new(error) }
    }
}

/// The offsets of a log; see the drawing above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ruler {
    log_start: Offset,
    high_watermark: Offset,
    flushed: Offset,
    log_end: Offset,
}

/// The writer of one partition's log.
#[derive(Debug)]
pub struct Log {
    id: LogId,
    place: Arc<Place>,
    config: Arc<LogConfig>,
    ruler: Ruler,
    /// Oldest first; the last one takes the appends. Never empty.
    segments: Arc<[Arc<Segment>]>,
    active: Active,
    epochs: EpochCache,
    /// What changed since `leader-epoch-checkpoint` was written.
    epoch_changes: Changes,
    /// The files that the directory got since it was synced.
    dir_changes: Changes,
    mended: Mended,
    /// The cuts of the active segment, which make nothing less durable but should not come back either.
    cut_changes: Changes,
    producers: ProducerState,
    snapshots: Snapshots,
    tail: Arc<TailCache>,
    /// Something was changed that a closed log has complete.
    touched: bool,
    /// Grows with each truncation, so that a flush that began before one does not count after it.
    truncations: u32,
    /// Where segments began that were cut off, and whose files wait to be removed.
    cut_off: Vec<Offset>,
    /// The same for whoever holds a view.
    truncations_now: Arc<AtomicU32>,
    failure: Option<Arc<str>>,
    recovered: Recovered,
    /// An earlier process has known of damage in it.
    is_suspect: bool,
    views: LogViews,
    /// The checkpoints that speak of it, and its name there: they are to say no more than what is left of it.
    checkpoints: Option<(Arc<OffsetFiles>, TopicPartition)>,
}

/// What only matters for the segment that takes the appends.
#[derive(Debug)]
struct Active {
    created: TimestampMs,
    /// The timestamp that the segment's age counts from: the largest of its first batch. `None`: not looked up yet.
    first_timestamp: Option<TimestampMs>,
    bytes_since_index_entry: u64,
}

impl Active {
    fn new(created: TimestampMs) -> Active {
        Active { created, first_timestamp: None, bytes_since_index_entry: 0 }
    }
}

impl Log {
    /// Where what is stable ends: the high watermark, or the start of the oldest transaction that is undecided below it.
    pub fn last_stable(&self) -> Offset {
        self.views.load().last_stable
    }

    /// A handle to load views through.
    pub fn views(&self) -> LogViews {
        self.views.clone()
    }

    /// The view as it is now.
    pub fn view(&self) -> Arc<LogView> {
        self.views.load_full()
    }

    pub fn config(&self) -> &Arc<LogConfig> {
        &self.config
    }

    pub fn update_config(&mut self, config: Arc<LogConfig>) {
        self.producers.set_limit(config.producer_states_max);
        self.config = config;
    }

    pub fn log_start(&self) -> Offset {
        self.ruler.log_start
    }

    pub fn high_watermark(&self) -> Offset {
        self.ruler.high_watermark
    }

    /// What is below is durable: the recovery point.
    pub fn flushed(&self) -> Offset {
        self.ruler.flushed
    }

    pub fn log_end(&self) -> Offset {
        self.ruler.log_end
    }

    pub fn epochs(&self) -> &EpochCache {
        &self.epochs
    }

    /// Why the log takes no more changes, if it does not.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Takes the log out of service: a write or a sync that it depends on has failed.
    pub fn poison(&mut self, reason: &str) {
        if self.failure.is_none() {
            self.failure = Some(reason.into());
        }
    }

    /// These checkpoints speak of it under this name.
    #[must_use]
    pub fn with_checkpoints(self, files: Arc<OffsetFiles>, name: TopicPartition) -> Log {
        Log { checkpoints: Some((files, name)), ..self }
    }

    /// Moves the high watermark. The log's ends bound it.
    pub fn set_high_watermark(&mut self, to: Offset) {
        let high_watermark = to.clamp(self.ruler.log_start, self.ruler.log_end);
        if high_watermark != self.ruler.high_watermark {
            self.producers.on_high_watermark(high_watermark);
            self.draw(Ruler { high_watermark, ..self.ruler });
        }
    }

    /// What the log knows of idempotent and transactional producers.
    pub fn producers(&self) -> &ProducerState {
        &self.producers
    }

    /// A producer wants to begin a transaction here, and its coordinator is going to be asked. `None`: it has one open.
    pub fn begin_verification(
        &mut self,
        batch: &FirstBatch,
        now: TimestampMs,
    ) -> Result<Option<Guard>, ProducerError> {
        self.producers.begin_verification(batch, now)
    }

    /// Forgets the producers that have not written for `producer.id.expiration.ms`, and more if there are too many in all logs;
    /// returns how many have expired.
    pub fn expire_producers(&mut self, now: TimestampMs) -> usize {
        if self.producers.is_empty() {
            return 0;
        }
        self.producers.expire(self.config.producer_expires_before(now))
    }

    /// How many producers were forgotten since it was asked last, because there were too many.
    pub fn take_forgotten_producers(&mut self) -> usize {
        self.producers.take_forgotten()
    }

    /// Notes that `epoch` begins at the log's end: this broker now leads, and what follows is of that epoch.
    pub fn assign_epoch_start(&mut self, epoch: LeaderEpoch) {
        self.note_epoch(epoch, self.ruler.log_end);
        self.touched = true;
        self.publish();
    }

    fn note_epoch(&mut self, epoch: LeaderEpoch, start: Offset) {
        self.epoch_changes.note_if(self.epochs.assign(epoch, start));
    }

    /// Forgets batches in memory that were appended before `then`.
    pub fn expire_tail(&self, then: TimestampMs) {
        self.tail.expire(then);
    }

    fn active(&self) -> &Arc<Segment> {
        self.segments.last().expect("a log has a segment")
    }

    /// The one place where offsets change.
    fn draw(&mut self, ruler: Ruler) {
        let Ruler { log_start, high_watermark, flushed, log_end } = ruler;
        assert!(
            Offset::ZERO <= log_start && log_start <= high_watermark && high_watermark <= log_end,
            "{ruler:?} of {}",
            self.place.dir().display()
        );
        assert!(flushed <= log_end, "{ruler:?} of {}", self.place.dir().display());
        self.ruler = ruler;
        self.publish();
    }

    fn publish(&self) {
        self.views.store(Arc::new(self.current_view()));
    }

    fn current_view(&self) -> LogView {
        let Ruler { log_start, high_watermark, flushed, log_end } = self.ruler;
        let unstable = self.producers.first_unstable_offset();
        let unstable = unstable.filter(|_| !fault::is_active(Fault::ForgetsOpenTransactions));
        let unstable = unstable.unwrap_or(high_watermark);
        LogView {
            log_start,
            last_stable: unstable.clamp(log_start, high_watermark),
            high_watermark,
            flushed,
            log_end,
            truncations: self.truncations,
            epochs: self.epochs.clone(),
            segments: self.segments.clone(),
            active_size: self.active().size(),
            tail: self.tail.clone(),
            truncations_now: self.truncations_now.clone(),
        }
    }

    /// Before anything is cut, and so before anything takes its place.
    fn note_truncation(&mut self, truncations: u32) {
        self.truncations = truncations;
        self.truncations_now.store(truncations, Ordering::Release);
    }

    fn check_in_service(&self) -> Result<(), LogError> {
        match &self.failure {
            Some(reason) => Err(LogError::Poisoned(reason.clone())),
            None => Ok(()),
        }
    }

    /// Takes the result of a step that changes nothing that cannot be repeated: a full disk leaves the log in service.
    fn or_full<T>(&mut self, what: &str, result: io::Result<T>) -> Result<T, LogError> {
        match result {
            Err(error) if disk::is_full(&error) => Err(LogError::DiskFull),
            result => self.or_poison(what, result),
        }
    }

    /// Takes the result of a step that changes files. When it failed, the log is out of service.
    fn or_poison<T>(&mut self, what: &str, result: io::Result<T>) -> Result<T, LogError> {
        result.map_err(|error| {
            self.poison(&format!("{what}: {error}"));
            LogError::Io { what: what.into(), error: Arc::new(error) }
        })
    }
}

fn new_views(view: LogView) -> LogViews {
    Arc::new(ArcSwap::from_pointee(view))
}
