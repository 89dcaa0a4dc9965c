//! The group coordinator: the groups whose ids hash to one partition of `__consumer_offsets`.
//!
//! A step never waits and never fails half way: a command changes the state at once, its records come out in [`Out`],
//! and every reply of a step may leave once all records up to that step are committed. When an append fails, the state
//! is dropped and folded anew from the log, so no undoing is known here.
//!
//! In reading order: `command`, `reply`, `settings` (the words), `groups` (the machine: finds the group, keeps the
//! timers), `classic` and `consumer` (one group of either protocol), `assignor` (who is to have what, in the consumer
//! protocol), `offsets` (what groups have committed), `record`.

pub mod command;
pub mod reply;
pub mod settings;

pub mod groups;
pub mod assignor;
pub mod classic;
pub mod consumer;
pub mod offsets;
pub mod producers;
pub mod record;
mod topic_names;

use std::ops::Deref;
use std::sync::Arc;

pub use super::{Now, Producer, ReplyToken};
pub use command::Command;
pub use groups::Groups;
use record::Record;
pub use reply::Reply;
pub use settings::Settings;

/// What a step leads to.
pub type Out = super::Out<Record, Reply>;

/// Ids of groups, members, instances and clients, names of topics and of protocols.
pub type Name = Arc<str>;

/// A request whose reply is owed under a token.
#[derive(Clone, Debug)]
pub struct Asked<T> {
    pub token: ReplyToken,
    pub request: T,
}

impl<T> Deref for Asked<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.request
    }
}
