//! openraft's own test suite for storage, on a real directory, and what else the store does to entries.

use std::sync::Arc;

use bytes::Bytes;
use openraft::storage::{RaftLogStorageExt, RaftStateMachine};
use openraft::testing::{StoreBuilder, Suite};
use openraft::{CommittedLeaderId, EntryPayload, RaftLogReader};
use tempfile::TempDir;

use crate::controller::raft_store::LogStore;
use crate::controller::raft_types::{Applied, Batch, Entry, LogId, Quorum, StorageError};
use crate::controller::snapshot::SnapshotDir;
use crate::controller::state_machine::StateMachine;
use crate::storage::disk::{Disk, RealDisk};

struct Builder;

impl StoreBuilder<Quorum, LogStore, StateMachine, TempDir> for Builder {
    async fn build(&self) -> Result<(TempDir, LogStore, StateMachine), StorageError> {
        let dir = tempfile::tempdir().unwrap();
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        // So small that every test has several segments.
        let (store, _) = LogStore::open(Arc::clone(&disk), dir.path(), 200).unwrap();
        let state_machine = StateMachine::load(SnapshotDir::new(disk, dir.path())).unwrap();
        Ok((dir, store, state_machine))
    }
}

#[test]
fn the_store_passes_openrafts_suite() {
    Suite::test_all(Builder).unwrap();
}

/// Each is for a term or for any, and all are written in term 7.
#[tokio::test]
async fn what_is_for_another_term_is_in_the_log_without_effect() {
    let dir = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let (mut store, has_ended) = LogStore::open(Arc::clone(&disk), dir.path(), 200).unwrap();
    let mut state_machine = StateMachine::load(SnapshotDir::new(Arc::clone(&disk), dir.path())).unwrap();
    let terms = [Some(6), None, Some(8), Some(7), Some(0)];
    let entry = |(index, term)| {
        let batch = Batch { base: 0, tag: index, term, records: Bytes::new() };
        let log_id = LogId::new(CommittedLeaderId::new(7, 1), index);
        Entry { log_id, payload: EntryPayload::Normal(batch) }
    };
    store.blocking_append((0..).zip(terms).map(entry)).await.unwrap();
    let written = store.try_get_log_entries(..).await.unwrap();
    let applied = state_machine.apply(written.clone()).await.unwrap();
    let (stale, taken) = (Applied::Stale { version: 0 }, Applied::Records { version: 0 });
    assert_eq!(applied, [stale, taken, stale, taken, stale]);
    // Whoever reads it from the disk makes the same of it.
    store.stop();
    has_ended.await.unwrap();
    let (mut again, _) = LogStore::open(disk, dir.path(), 200).unwrap();
    assert_eq!(again.try_get_log_entries(..).await.unwrap(), written);
}
