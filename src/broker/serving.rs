//! Reading a partition for a fetch, the same for consumers and for followers: whether this broker leads it in the epoch that
//! the reader knows, whether the reader's log agrees with this one, and the records.
//!
//! Must not know requests, sessions or error codes. Invariant: what is served comes from the log of one term of this leader,
//! the one that is told with it.

use std::io;
use std::sync::Arc;

use bytes::Bytes;

use super::messages::FollowerFetched;
use super::partitions::{Leadership, Partition, Role};
use super::waiters::Bound;
use crate::replica::{EpochEnd, FollowerFetch};
use crate::storage::log::{LogView, ReadError, ReadPlan};
use crate::types::{LeaderEpoch, Offset};

/// Why a partition is not served to somebody who asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotServed {
    #[error("this broker does not lead the partition")]
    NotLeader,
    #[error("the partition's log directory is out of service")]
    Offline,
    #[error("the reader's leader epoch is over")]
    FencedLeaderEpoch,
    #[error("the reader's leader epoch is not known here yet")]
    UnknownLeaderEpoch,
}

/// Why there is nothing to read.
#[derive(Debug, thiserror::Error)]
pub enum ReadRefused {
    #[error("the offset is not in the log, or the reader's epoch is not known")]
    OutOfRange,
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// From where a reader reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadFrom {
    pub offset: Offset,
    /// `UNKNOWN` from a reader that does not compare logs.
    pub last_fetched_epoch: LeaderEpoch,
}

/// What was read.
#[derive(Debug, Default)]
pub struct Records {
    pub pieces: Vec<Bytes>,
    /// Where the reader's last epoch really ended, when its log differs from this one. Then there are no records.
    pub diverging: Option<EpochEnd>,
}

impl Leadership {
    /// Whether a reader that knows this leader epoch (`UNKNOWN`: none) is at the right place.
    pub fn admits(&self, epoch: LeaderEpoch) -> Result<(), NotServed> {
        if self.role == Role::Offline {
            Err(NotServed::Offline)
        } else if epoch != LeaderEpoch::UNKNOWN && epoch < self.leader_epoch {
            Err(NotServed::FencedLeaderEpoch)
        } else if epoch != LeaderEpoch::UNKNOWN && epoch > self.leader_epoch {
            Err(NotServed::UnknownLeaderEpoch)
        } else {
            Ok(())
        }
    }
}

/// The end of what a reader may see, exclusive.
pub fn limit(view: &LogView, bound: Bound) -> Offset {
    match bound {
        Bound::HighWatermark => view.high_watermark,
        Bound::LastStable => view.last_stable,
        Bound::LogEnd => view.log_end,
    }
}

/// The log as it is in the present term of this leader.
pub fn led_view(partition: &Partition, epoch: LeaderEpoch) -> Result<(Leadership, Arc<LogView>), NotServed> {
    let (leadership, view) = replica_view(partition, epoch)?;
    if leadership.role == Role::Leader { Ok((leadership, view)) } else { Err(NotServed::NotLeader) }
}

/// The log as it is in the present term, whoever leads.
pub fn replica_view(
    partition: &Partition,
    epoch: LeaderEpoch,
) -> Result<(Leadership, Arc<LogView>), NotServed> {
    let leadership = partition.leadership();
    leadership.admits(epoch)?;
    let view = partition.view();
    // The log of a broker that has become a follower meanwhile may have been cut already.
    if partition.leadership() != leadership {
        return Err(NotServed::NotLeader);
    }
    Ok((leadership, view))
}

/// Reads whole batches. Blocks on the disk when they are not in memory.
pub fn read(
    view: &LogView,
    from: ReadFrom,
    bound: Bound,
    max_bytes: usize,
    min_one_batch: bool,
) -> Result<Records, ReadRefused> {
    if let Some(diverging) = diverging(view, from)? {
        return Ok(Records { pieces: Vec::new(), diverging: Some(diverging) });
    }
    let plan = view.read(from.offset, max_bytes, limit(view, bound), min_one_batch);
    let pieces = match plan {
        Ok(ReadPlan::Ready(batches)) => batches,
        Ok(ReadPlan::Cold(cold)) => {
            let bytes = cold.run()?;
            if bytes.is_empty() { Vec::new() } else { vec![bytes] }
        }
        Err(ReadError::OutOfRange { .. }) => return Err(ReadRefused::OutOfRange),
    };
    Ok(Records { pieces, diverging: None })
}

/// Where the reader's log leaves this one (KIP-595).
fn diverging(view: &LogView, from: ReadFrom) -> Result<Option<EpochEnd>, ReadRefused> {
    if from.last_fetched_epoch == LeaderEpoch::UNKNOWN {
        return Ok(None);
    }
    let end = view.end_offset_for_epoch(from.last_fetched_epoch);
    let (epoch, end) = end.ok_or(ReadRefused::OutOfRange)?;
    if from.offset < view.log_start {
        // Truncating would not help a reader whose records are gone.
        return Err(ReadRefused::OutOfRange);
    }
    let diverges = epoch < from.last_fetched_epoch || end < from.offset;
    Ok(diverges.then_some(EpochEnd { epoch, end }))
}

/// What the leader is told of a follower's fetch that was served: `None` when the logs diverge, since then nobody knows how far
/// the follower really is.
pub fn fetched(
    partition: &Partition,
    leadership: &Leadership,
    records: &Records,
    fetch: FollowerFetch,
) -> Option<FollowerFetched> {
    records.diverging.is_none().then_some(FollowerFetched {
        id: partition.id,
        leader_epoch: leadership.leader_epoch,
        fetch,
    })
}
