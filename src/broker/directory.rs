//! One log directory of this broker while it runs: whether it is in service, and its flusher's queue.
//!
//! Must not know what lies in it. Invariant: once it has failed it stays out of service until the process starts again; every
//! shard is told once.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::flusher::FlushQueue;
use super::mailbox::{Message, ShardSender};
use crate::types::DirectoryId;

#[derive(Debug)]
pub struct Directory {
    index: usize,
    path: PathBuf,
    id: DirectoryId,
    pub(super) flush: FlushQueue,
    failure: OnceLock<String>,
    shards: Vec<ShardSender>,
}

impl Directory {
    pub fn new(index: usize, path: PathBuf, id: DirectoryId, shards: Vec<ShardSender>) -> Directory {
        Directory { index, path, id, flush: FlushQueue::default(), failure: OnceLock::new(), shards }
    }

    /// Its place in `log.dirs`.
    pub fn index(&self) -> usize {
        self.index
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn id(&self) -> DirectoryId {
        self.id
    }

    pub fn is_online(&self) -> bool {
        self.failure.get().is_none()
    }

    /// Why the directory is out of service, if it is.
    pub fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    /// Puts the directory out of service: a write, a sync or a read that must not fail has failed.
    pub fn fail(&self, doing: &str, error: &io::Error) {
        let failure = format!("could not {doing}: {error}");
        if self.failure.set(failure.clone()).is_ok() {
            tracing::error!(
                "Log directory {} is out of service, its partitions are offline: {failure}",
                self.path.display()
            );
            for shard in &self.shards {
                shard.send_event(Message::DirectoryFailed(self.index));
            }
        }
    }

    pub(super) fn shards(&self) -> &[ShardSender] {
        &self.shards
    }
}
