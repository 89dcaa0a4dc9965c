//! The state machine as openraft sees it: committed entries fold into the image, which is published; snapshots of it
//! replace the log.
//!
//! Knows no decisions: what an entry holds has been decided. Invariants: an entry decided on another version than the
//! image's changes nothing; the image that is published is the fold of all entries up to the last applied one; an answer
//! leaves after the image that it speaks of is published.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use openraft::storage::RaftStateMachine;
use openraft::{AnyError, EntryPayload, OptionalSend, RaftSnapshotBuilder, StorageIOError};
use tokio::sync::watch;

use crate::controller::raft_types::{
    Applied, Batch, Entry, LogId, Quorum, RaftNodeId, SnapshotMeta, StorageError, StoredMembership,
};
use crate::controller::snapshot::{Contents, ReadSnapshotError, SnapshotDir, SnapshotFile};
use crate::metadata::record::RecordError;
use crate::metadata::{Image, ImageVersion, Record};
use crate::storage::disk;

/// How long a snapshot that found no room is put off.
const FULL_DISK_PAUSE: Duration = Duration::from_secs(30);

type Snapshot = openraft::Snapshot<Quorum>;

/// Where the newest image is found and its changes are heard.
#[derive(Debug)]
pub struct Published {
    current: ArcSwap<Image>,
    changes: watch::Sender<Arc<Image>>,
    /// The newest batches that took effect: the version that each was decided on, and its tag.
    taken: Mutex<VecDeque<(u64, u64)>>,
}

/// How many batches are remembered: those of a leader that fails between taking one and saying so are among the newest.
const REMEMBERED: usize = 256;

impl Published {
    pub fn new(image: Image) -> Published {
        let image = Arc::new(image);
        Published {
            current: ArcSwap::new(Arc::clone(&image)),
            changes: watch::Sender::new(image),
            taken: Mutex::default(),
        }
    }

    pub fn image(&self) -> Arc<Image> {
        self.current.load_full()
    }

    pub fn subscribe(&self) -> watch::Receiver<Arc<Image>> {
        self.changes.subscribe()
    }

    /// Replaces the image by a newer one.
    pub fn publish(&self, image: Image) {
        let image = Arc::new(image);
        self.current.store(Arc::clone(&image));
        self.changes.send_replace(image);
    }
}

impl Published {
    /// Waits until the image has this version, or a newer one. When the node has stopped this never ends.
    pub async fn reached(&self, version: u64) {
        let mut images = self.subscribe();
        if images.wait_for(|image| image.version.0 >= version).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Whether a batch is known to have taken effect here.
    pub fn has_taken(&self, batch: &Batch) -> bool {
        batch.tag != 0 && lock(&self.taken).contains(&(batch.base, batch.tag))
    }

    /// Notes that a batch takes effect.
    pub fn note_taken(&self, batch: &Batch) {
        let mut taken = lock(&self.taken);
        if taken.len() >= REMEMBERED {
            taken.pop_front();
        }
        taken.push_back((batch.base, batch.tag));
    }
}

/// Folds entries into an image.
#[derive(Debug)]
pub struct StateMachine {
    image: Image,
    last: Option<LogId>,
    membership: StoredMembership,
    published: Arc<Published>,
    snapshots: SnapshotDir,
    /// The newest snapshot, shared with its builder.
    current: Arc<Mutex<Option<(Contents, SnapshotFile)>>>,
}

/// Why the newest snapshot cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("cannot look for snapshots: {0}")]
    Io(#[from] io::Error),
    #[error(transparent)]
    Snapshot(#[from] ReadSnapshotError),
}

impl StateMachine {
    /// The state of the newest snapshot, or the empty one.
    pub fn load(snapshots: SnapshotDir) -> Result<StateMachine, LoadError> {
        snapshots.tidy()?;
        let (image, current) = match snapshots.newest()? {
            Some(file) => {
                let (image, contents) = read_image(&file)?;
                (image, Some((contents, file)))
            }
            None => (Image::default(), None),
        };
        let contents = current.as_ref().map(|(contents, _)| contents.clone()).unwrap_or_default();
        Ok(StateMachine {
            published: Arc::new(Published::new(image.clone())),
            image,
            last: contents.last,
            membership: contents.membership,
            snapshots,
            current: Arc::new(Mutex::new(current)),
        })
    }

    pub fn published(&self) -> Arc<Published> {
        Arc::clone(&self.published)
    }

    #[expect(clippy::result_large_err, reason = "openraft's error, which is made once in a node's life")]
    fn apply_batch(&mut self, id: LogId, batch: &Batch) -> Result<Applied, StorageIOError<RaftNodeId>> {
        if batch.base != self.image.version.0 {
            return Ok(Applied::Stale { version: self.image.version.0 });
        }
        let failed = |error: AnyError| StorageIOError::apply(id, error);
        let records = batch.split().map_err(|error| failed(AnyError::new(&error)))?;
        // All are decoded before the first is applied: an entry is applied whole or not at all.
        let records: Result<Vec<_>, RecordError> = records.into_iter().map(Record::decode).collect();
        let records = records.map_err(|error| failed(AnyError::new(&error)))?;
        // An image refuses by panicking what does not fit it. The proposer has run into it before; if it happens here all
        // the same, the node stops rather than go on with half an entry.
        let next = catch_unwind(AssertUnwindSafe(|| {
            let mut next = self.image.clone();
            records.iter().for_each(|(record, _)| next.apply(record));
            next
        }));
        self.image = next.map_err(|_| failed(AnyError::error("its records do not fit the image")))?;
        self.published.note_taken(batch);
        Ok(Applied::Records { version: self.image.version.0 })
    }
}

fn read_image(file: &SnapshotFile) -> Result<(Image, Contents), ReadSnapshotError> {
    let mut image = Image::default();
    let contents = file.read(|bytes| {
        let (record, _) = Record::decode(bytes).map_err(|error| error.to_string())?;
        image.apply(&record);
        Ok(())
    })?;
    image.version = ImageVersion(contents.version);
    Ok((image, contents))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn current_snapshot(current: &Mutex<Option<(Contents, SnapshotFile)>>) -> Option<Snapshot> {
    let (contents, file) = lock(current).clone()?;
    Some(Snapshot { meta: contents.meta(), snapshot: Box::new(file) })
}

impl RaftStateMachine<Quorum> for StateMachine {
    type SnapshotBuilder = SnapshotBuilder;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), StorageError> {
        Ok((self.last, self.membership.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<Applied>, StorageError>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let before = self.image.version;
        let mut answers = Vec::new();
        for entry in entries {
            let id = entry.log_id;
            answers.push(match entry.payload {
                EntryPayload::Blank => Applied::Nothing,
                EntryPayload::Normal(batch) => self.apply_batch(id, &batch)?,
                EntryPayload::Membership(membership) => {
                    self.membership = StoredMembership::new(Some(id), membership);
                    Applied::Nothing
                }
            });
            self.last = Some(id);
        }
        if self.image.version != before {
            self.published.publish(self.image.clone());
        }
        Ok(answers)
    }

    async fn get_snapshot_builder(&mut self) -> SnapshotBuilder {
        SnapshotBuilder {
            image: self.image.clone(),
            contents: Contents {
                version: self.image.version.0,
                last: self.last,
                membership: self.membership.clone(),
            },
            snapshots: self.snapshots.clone(),
            current: Arc::clone(&self.current),
        }
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<SnapshotFile>, StorageError> {
        let file = self.snapshots.receive();
        Ok(Box::new(file.map_err(|error| StorageIOError::write_snapshot(None, AnyError::new(&error)))?))
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta,
        snapshot: Box<SnapshotFile>,
    ) -> Result<(), StorageError> {
        let failed = |error: AnyError| StorageIOError::write_snapshot(Some(meta.signature()), error);
        let snapshots = self.snapshots.clone();
        let last = meta.last_log_id;
        let installed = tokio::task::spawn_blocking(move || {
            let (image, contents) = read_image(&snapshot).map_err(|error| AnyError::new(&error))?;
            if contents.last != last {
                return Err(AnyError::error("the snapshot is not the one that was announced"));
            }
            let file = snapshots.install(&snapshot, &contents).map_err(|error| AnyError::new(&error))?;
            Ok((image, contents, file))
        });
        let installed = installed.await.map_err(|error| failed(AnyError::new(&error)))?;
        let (image, contents, file) = installed.map_err(failed)?;
        self.image = image;
        self.last = contents.last;
        self.membership = contents.membership.clone();
        *lock(&self.current) = Some((contents, file));
        self.published.publish(self.image.clone());
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot>, StorageError> {
        Ok(current_snapshot(&self.current))
    }
}

/// Writes a snapshot of the image as it was when the builder was made.
#[derive(Debug)]
pub struct SnapshotBuilder {
    image: Image,
    contents: Contents,
    snapshots: SnapshotDir,
    current: Arc<Mutex<Option<(Contents, SnapshotFile)>>>,
}

impl RaftSnapshotBuilder<Quorum> for SnapshotBuilder {
    async fn build_snapshot(&mut self) -> Result<Snapshot, StorageError> {
        let failed = |error: AnyError| StorageIOError::<RaftNodeId>::write_snapshot(None, error);
        let (contents, file) = loop {
            let (image, contents) = (self.image.clone(), self.contents.clone());
            let snapshots = self.snapshots.clone();
            let written = tokio::task::spawn_blocking(move || {
                let version = image.metadata_version();
                let records = image.to_records();
                let records = records.iter().map(|record| record.encode(version).map_err(io::Error::other));
                snapshots.write(&contents, records).map(|file| (contents, file))
            });
            match written.await.map_err(|error| failed(AnyError::new(&error)))? {
                // The log is whole without it, so a full disk is no reason to stop.
                Err(error) if disk::is_full(&error) => {
                    tracing::warn!("no room for a snapshot of the metadata; it is tried again later");
                    tokio::time::sleep(FULL_DISK_PAUSE).await;
                }
                written => break written.map_err(|error| failed(AnyError::new(&error)))?,
            }
        };
        let snapshot = Snapshot { meta: contents.meta(), snapshot: Box::new(file.clone()) };
        *lock(&self.current) = Some((contents, file));
        Ok(snapshot)
    }
}
