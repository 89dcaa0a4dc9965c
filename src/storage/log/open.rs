//! Opening and creating a log: what `recovery` found sound, the epochs, and the producers, put together.
//!
//! Invariant: a log that was opened can be appended to at once, and what it shows was durable before.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use super::config::LogConfig;
use super::epoch_cache::EpochCache;
use super::epoch_recovery;
use super::flush::{Changes, LogId};
use super::lazy_file::Place;
use super::mend::Mended;
use super::names::{self, FileName, Kind, Stage};
use super::open_files::Budgets;
use super::producer_state::ProducerState;
use super::recovery::{Inventory, Recovered, Recovery, take_inventory};
use super::segment::Segment;
use super::snapshots::{Replay, Snapshots};
use super::tail_cache::TailCache;
use super::unchecked::Unchecked;
use super::view::LogView;
use super::{Active, Log, LogError, Ruler, new_views};
use crate::storage::checkpoint;
use crate::storage::disk::Disk;
use crate::types::{Offset, TimestampMs};

/// What is known about a log before its directory is looked at.
#[derive(Clone, Debug)]
pub struct OpenArgs {
    /// What is below was flushed (`recovery-point-offset-checkpoint`).
    pub recovery_point: Offset,
    /// Where the log starts (`log-start-offset-checkpoint`); its first segment may start later.
    pub log_start: Offset,
    /// The directory was closed in an orderly way, so its files can be trusted.
    pub clean_shutdown: bool,
    pub now: TimestampMs,
    pub budgets: Budgets,
    /// Tells what is left to check.
    pub unchecked: Arc<Unchecked>,
}

/// What was found on disk.
pub(super) struct Loaded {
    segments: Vec<Arc<Segment>>,
    log_start: Offset,
    log_end: Offset,
    flushed: Offset,
    epochs: EpochCache,
    epochs_dirty: bool,
    producers: ProducerState,
    snapshots: Snapshots,
    recovered: Recovered,
    is_suspect: bool,
}

impl Log {
    /// Creates an empty log that starts at `args.log_start` in the directory `dir`, which is made.
    pub fn create(
        disk: Arc<dyn Disk>,
        dir: &Path,
        config: Arc<LogConfig>,
        args: &OpenArgs,
    ) -> Result<Log, LogError> {
        let place = Arc::new(Place::new(disk, dir, args.budgets.files.clone()));
        create(&place, args)
            .map(|loaded| assemble(place, config, args, loaded))
            .map_err(|error| LogError::io("creating", dir, error))
    }

    /// Opens the log in the directory `dir`, recovering what an unclean stop left.
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        config: Arc<LogConfig>,
        args: &OpenArgs,
    ) -> Result<Log, LogError> {
        let place = Arc::new(Place::new(disk, dir, args.budgets.files.clone()));
        load(&place, &config, args)
            .map(|loaded| assemble(place, config, args, loaded))
            .map_err(|error| LogError::io("opening", dir, error))
    }

    /// What opening the log had to do.
    pub fn recovered(&self) -> &Recovered {
        &self.recovered
    }
}

fn create(place: &Arc<Place>, args: &OpenArgs) -> io::Result<Loaded> {
    let dir = place.dir();
    place.disk.create_dir_all(&dir)?;
    refuse_records(place)?;
    let loaded = Loaded { epochs_dirty: false, ..start_empty(place, args)? };
    if let Some(parent) = dir.parent() {
        place.disk.sync_dir(parent)?;
    }
    Ok(loaded)
}

/// A new log takes the place of an interrupted attempt to make it, but never of records.
fn refuse_records(place: &Arc<Place>) -> io::Result<()> {
    let names = place.disk.list(&place.dir())?;
    let segments = names.iter().filter_map(|entry| FileName::parse(&entry.name));
    for name in segments.filter(|name| name.kind == Kind::Log && name.stage == Stage::Live) {
        if place.size_of(name)?.is_some_and(|size| size > 0) {
            let what = format!("{} holds records", place.path(name).display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
        }
    }
    Ok(())
}

/// One empty segment, where the log is said to start.
fn start_empty(place: &Arc<Place>, args: &OpenArgs) -> io::Result<Loaded> {
    let start = args.log_start;
    let segment = Segment::create(place.clone(), start)?;
    place.sync()?;
    Ok(Loaded {
        segments: vec![Arc::new(segment)],
        log_start: start,
        log_end: start,
        flushed: start,
        epochs: EpochCache::default(),
        epochs_dirty: true,
        producers: ProducerState::new(start),
        snapshots: Snapshots::default(),
        recovered: Recovered::default(),
        is_suspect: false,
    })
}

fn load(place: &Arc<Place>, config: &LogConfig, args: &OpenArgs) -> io::Result<Loaded> {
    let inventory = take_inventory(place)?;
    let mut loaded = load_segments(place, config, args, &inventory)?;
    loaded.recovered.foreign = inventory.foreign;
    Ok(loaded)
}

fn load_segments(
    place: &Arc<Place>,
    config: &LogConfig,
    args: &OpenArgs,
    inventory: &Inventory,
) -> io::Result<Loaded> {
    let mut snapshots = Snapshots::new(inventory.snapshots.clone());
    if inventory.segments.is_empty() {
        snapshots.retain(place, |_| false)?;
        return start_empty(place, args);
    }
    let (stored, lost_epochs) = match checkpoint::read_epochs(&*place.disk, &place.join(names::LEADER_EPOCHS))
    {
        // The batches tell the same.
        Err(error) if error.kind() == io::ErrorKind::InvalidData => (Vec::new(), true),
        stored => (stored?, false),
    };
    let stored = EpochCache::from_entries(stored);
    let mut epochs = stored.clone();
    let mut recovery = Recovery::new(place, config, inventory, &args.unchecked)?;
    let is_sound = args.clean_shutdown || recovery.is_untouched(inventory, args.recovery_point)?;
    let clean_end = if is_sound { recovery.clean_end()? } else { None };
    let (log_end, last_epoch) = match clean_end {
        Some(found) => found,
        None => {
            let mut last = None;
            let end = recovery.check_from(args.recovery_point, |header| last = Some(header.leader_epoch))?;
            (end, last)
        }
    };
    if log_end < args.log_start {
        // The files of the log's end are gone. What is left lies before its start, and its offsets must not be used again.
        for segment in recovery.segments.iter().rev() {
            segment.remove_files()?;
        }
        snapshots.retain(place, |_| false)?;
        return start_empty(place, args);
    }
    let log_start = args.log_start.max(recovery.segments[0].base());
    let replay = Replay { place, config, segments: &recovery.segments, log_start, log_end };
    let producers = match recovery.scanned_from {
        None => load_producers(&replay, &mut snapshots, args.now)?,
        Some(from) => rebuild_producers(&replay, &mut snapshots, from, args.now)?,
    };
    epochs.truncate_from_end(log_end);
    epoch_recovery::complete(&mut epochs, &recovery.segments, last_epoch)?;
    epochs.truncate_from_start(args.log_start);
    Ok(Loaded {
        log_start,
        segments: recovery.segments,
        log_end,
        flushed: log_end,
        epochs_dirty: epochs != stored || lost_epochs,
        epochs,
        producers,
        snapshots,
        recovered: Recovered { lost_epochs, ..recovery.outcome },
        is_suspect: inventory.is_suspect,
    })
}

/// After an orderly stop: the snapshot of the log's end, or a replay of what follows the latest one. A log without any
/// never had a producer.
fn load_producers(
    replay: &Replay<'_>,
    snapshots: &mut Snapshots,
    now: TimestampMs,
) -> io::Result<ProducerState> {
    snapshots.retain(replay.place, |at| at <= replay.log_end)?;
    snapshots.remove_strays(replay.place, replay.segments)?;
    if snapshots.is_empty() {
        return Ok(ProducerState::new(replay.log_end));
    }
    snapshots.rebuild(replay, replay.log_end, now)
}

/// After any other stop: only a snapshot of what was not checked anew counts, and the result is kept for the next time.
fn rebuild_producers(
    replay: &Replay<'_>,
    snapshots: &mut Snapshots,
    scanned_from: Offset,
    now: TimestampMs,
) -> io::Result<ProducerState> {
    snapshots.retain(replay.place, |at| at <= scanned_from)?;
    snapshots.remove_strays(replay.place, replay.segments)?;
    let producers = snapshots.rebuild(replay, scanned_from, now)?;
    let needed = !producers.is_empty() || !snapshots.is_empty();
    if needed && snapshots.latest() != Some(replay.log_end) {
        snapshots.take(replay.place, &producers)?;
        replay.place.sync_file(FileName::live(replay.log_end, Kind::ProducerSnapshot))?;
    }
    for segment in replay.segments {
        segment.txn_index.sync()?;
    }
    replay.place.sync()?;
    Ok(producers)
}

fn assemble(place: Arc<Place>, config: Arc<LogConfig>, args: &OpenArgs, loaded: Loaded) -> Log {
    let Loaded {
        segments,
        log_start,
        log_end,
        flushed,
        epochs,
        epochs_dirty,
        recovered,
        producers,
        snapshots,
        is_suspect,
    } = loaded;
    let segments: Arc<[Arc<Segment>]> = segments.into();
    let touched = snapshots.latest().is_some_and(|at| at != log_end);
    let mut epoch_changes = Changes::default();
    epoch_changes.note_if(epochs_dirty);
    let tail = Arc::new(TailCache::new(args.budgets.tail.clone()));
    let producers = producers.limited(config.producer_states_max).counted(args.budgets.producers.clone());
    let ruler = Ruler { log_start, high_watermark: log_start, flushed, log_end };
    let truncations_now: Arc<AtomicU32> = Arc::default();
    let views = new_views(LogView {
        log_start,
        last_stable: log_start,
        high_watermark: log_start,
        flushed,
        log_end,
        truncations: 0,
        epochs: epochs.clone(),
        active_size: segments.last().map_or(0, |segment| segment.size()),
        segments: segments.clone(),
        tail: tail.clone(),
        truncations_now: truncations_now.clone(),
    });
    Log {
        id: LogId::next(),
        place,
        config,
        ruler,
        segments,
        active: Active::new(args.now),
        epochs,
        epoch_changes,
        dir_changes: Changes::default(),
        mended: Mended::default(),
        cut_changes: Changes::default(),
        producers,
        snapshots,
        tail,
        // A closed log with snapshots has one of its end.
        touched,
        truncations: 0,
        cut_off: Vec::new(),
        truncations_now,
        failure: None,
        recovered,
        is_suspect,
        views,
        checkpoints: None,
    }
}
