//! The group coordinator: the groups whose ids hash to one partition of `__consumer_offsets`.
//!
//! A step never waits and never fails half way: a command changes the state at once, its records come out in [`Out`],
//! and every reply of a step may leave once all records up to that step are committed. When an append fails, the state
//! is dropped and folded anew from the log, so no undoing is known here.

pub mod classic;
pub mod offsets;
pub mod record;

use std::sync::Arc;

pub use super::{Now, Producer, ReplyToken};
use record::Record;

/// What a step leads to.
pub type Out = super::Out<Record, Reply>;

/// The reply to a request that may have waited for others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Join(Result<classic::Joined, classic::JoinRefused>),
    Sync(Result<classic::Synced, classic::SyncError>),
}

/// Ids of groups, members, instances, and names of protocols.
pub type Name = Arc<str>;
