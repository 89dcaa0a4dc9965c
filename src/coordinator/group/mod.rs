//! The group coordinator: the groups whose ids hash to one partition of `__consumer_offsets`.
//!
//! A step never waits and never fails half way: a command changes the state at once, its records come out in [`Out`],
//! and every reply of a step may leave once all records up to that step are committed. When an append fails, the state
//! is dropped and folded anew from the log, so no undoing is known here.

pub mod classic;
pub mod offsets;
pub mod record;

use std::sync::Arc;

use crate::types::{MonotonicMs, TimestampMs};
use record::Record;

/// Names a request that waits for its reply. The driver gets it back once, with the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReplyToken(pub u64);

/// The time at which a step happens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// For deadlines.
    pub monotonic: MonotonicMs,
    /// For what is written down.
    pub wall: TimestampMs,
}

/// What a step leads to.
#[derive(Debug, Default)]
pub struct Out {
    /// To append, in this order, as one batch.
    pub records: Vec<Record>,
    /// To answer once the records are committed.
    pub replies: Vec<(ReplyToken, Reply)>,
}

/// The reply to a request that may have waited for others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Join(Result<classic::Joined, classic::JoinRefused>),
    Sync(Result<classic::Synced, classic::SyncError>),
}

impl Out {
    fn record(&mut self, record: Record) {
        self.records.push(record);
    }

    fn reply(&mut self, token: ReplyToken, reply: Reply) {
        self.replies.push((token, reply));
    }
}

/// Ids of groups, members, instances, and names of protocols.
pub type Name = Arc<str>;
