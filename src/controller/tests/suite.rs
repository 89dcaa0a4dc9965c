//! openraft's own test suite for storage, on a real directory.

use std::sync::Arc;

use openraft::testing::{StoreBuilder, Suite};
use tempfile::TempDir;

use crate::controller::raft_store::LogStore;
use crate::controller::raft_types::{Quorum, StorageError};
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
