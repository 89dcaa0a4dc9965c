//! Opening and creating a log.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::config::LogConfig;
use super::epoch_cache::EpochCache;
use super::lazy_file::Place;
use super::names::{FileName, Kind};
use super::read::HeaderWalk;
use super::segment::Segment;
use super::tail_cache::{TailBudget, TailCache};
use super::view::LogView;
use super::{Active, Log, LogError, Ruler, new_views};
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
    pub tail_budget: Arc<TailBudget>,
}

impl Log {
    /// Creates an empty log that starts at `args.log_start` in the directory `dir`, which is made.
    pub fn create(
        disk: Arc<dyn Disk>,
        dir: &Path,
        config: Arc<LogConfig>,
        args: &OpenArgs,
    ) -> Result<Log, LogError> {
        let place = Arc::new(Place { disk, dir: dir.to_owned() });
        create(&place, args)
            .map(|segment| assemble(place, config, args, vec![Arc::new(segment)], args.log_start))
            .map_err(|error| LogError::io("creating", dir, error))
    }

    /// Opens the log in the directory `dir`, recovering what an unclean stop left.
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        config: Arc<LogConfig>,
        args: &OpenArgs,
    ) -> Result<Log, LogError> {
        let place = Arc::new(Place { disk, dir: dir.to_owned() });
        load(&place, args)
            .map(|(segments, end)| assemble(place, config, args, segments, end))
            .map_err(|error| LogError::io("opening", dir, error))
    }
}

fn load(place: &Arc<Place>, args: &OpenArgs) -> io::Result<(Vec<Arc<Segment>>, Offset)> {
    let mut bases: Vec<Offset> = place
        .disk
        .list(&place.dir)?
        .iter()
        .filter_map(|entry| FileName::parse(&entry.name))
        .filter(|name| *name == FileName::live(name.base, Kind::Log))
        .map(|name| name.base)
        .collect();
    bases.sort_unstable();
    let mut segments = Vec::new();
    for base in bases {
        let size = place.size_of(FileName::live(base, Kind::Log))?.unwrap_or(0);
        let aborted = place.size_of(FileName::live(base, Kind::TxnIndex))?.unwrap_or(0);
        segments.push(Arc::new(Segment::open(place.clone(), base, size, aborted)));
    }
    let Some(last) = segments.last() else {
        return Ok((vec![Arc::new(create(place, args)?)], args.log_start));
    };
    let mut end = last.base();
    let mut walk = HeaderWalk::new(last, 0)?;
    while let Some((_, header)) = walk.advance()? {
        end = header.next_offset();
    }
    Ok((segments, end))
}

fn create(place: &Arc<Place>, args: &OpenArgs) -> io::Result<Segment> {
    place.disk.create_dir_all(&place.dir)?;
    let segment = Segment::create(place.clone(), args.log_start)?;
    place.sync()?;
    if let Some(parent) = place.dir.parent() {
        place.disk.sync_dir(parent)?;
    }
    Ok(segment)
}

fn assemble(
    place: Arc<Place>,
    config: Arc<LogConfig>,
    args: &OpenArgs,
    segments: Vec<Arc<Segment>>,
    log_end: Offset,
) -> Log {
    let log_start = args.log_start.max(segments[0].base()).min(log_end);
    let segments: Arc<[Arc<Segment>]> = segments.into();
    let tail = Arc::new(TailCache::new(args.tail_budget.clone()));
    let ruler = Ruler { log_start, high_watermark: log_start, flushed: log_end, log_end };
    let views = new_views(LogView {
        log_start,
        last_stable: log_start,
        high_watermark: log_start,
        flushed: log_end,
        log_end,
        epochs: EpochCache::default(),
        segments: segments.clone(),
        tail: tail.clone(),
    });
    Log {
        place,
        config,
        ruler,
        segments,
        active: Active::new(args.now),
        epochs: EpochCache::default(),
        epochs_dirty: false,
        dir_dirty: false,
        tail,
        truncations: 0,
        failure: None,
        views,
    }
}
