//! The metadata log as openraft sees it: a front that answers from memory where it can and hands all else to the log's
//! thread.
//!
//! Knows no files. Invariants: an entry is readable as soon as `append` returns and durable before its callback runs; the
//! newest entries are kept in memory up to a bound, and those not yet flushed always; no entry that is in the log waits for
//! anything to be settled, so that all who read it make the same of it.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};

use bytes::{Bytes, BytesMut};
use openraft::storage::{LogFlushed, RaftLogStorage};
use openraft::{AnyError, EntryPayload, LogState, OptionalSend, RaftLogReader, StorageIOError};
use tokio::sync::oneshot;

use crate::controller::ballast::Ballast;
use crate::controller::codec;
use crate::controller::hard_state::{HardStateFile, OpenStateError};
use crate::controller::log_files::{Bounds, LogFiles, OpenLogError};
use crate::controller::log_segment;
use crate::controller::log_thread::{Command, Done, Flushed, LogThread, ThreadStatus};
use crate::controller::raft_types::{Entry, LogId, Membership, Quorum, RaftNodeId, StorageError, Vote};
use crate::controller::snapshot;
use crate::storage::disk::Disk;

/// Entries kept in memory: enough for applying what was just written and for followers that keep up.
const RECENT_BYTES: usize = 256 * 1024;
/// One read for a peer: replication asks again for the rest.
const READ_BYTES: u64 = 1024 * 1024;
const THREAD_STACK_BYTES: usize = 256 * 1024;

/// Why the store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenStoreError {
    #[error(transparent)]
    State(#[from] OpenStateError),
    #[error(transparent)]
    Log(#[from] OpenLogError),
    #[error("{dir}: {source}")]
    Io { dir: std::path::PathBuf, source: io::Error },
    #[error("an entry of the metadata log cannot be read: {0}")]
    Entry(#[from] codec::DecodeError),
}

/// The log store; clones share it.
#[derive(Clone, Debug)]
pub struct LogStore {
    memory: Arc<Mutex<Memory>>,
    status: Arc<ThreadStatus>,
    commands: mpsc::Sender<Command>,
}

/// What is answered without the thread.
#[derive(Debug, Default)]
struct Memory {
    vote: Option<Vote>,
    purged: Option<LogId>,
    last: Option<LogId>,
    committed: Option<LogId>,
    /// The newest entries, consecutive.
    recent: VecDeque<Entry>,
    recent_bytes: usize,
    /// The bytes of the log when it was opened and of all that was appended since.
    log_bytes: u64,
}

impl LogStore {
    /// Opens the store in `dir`, which is made if missing, and starts its thread. The receiver hears when the thread has
    /// ended, after which the directory may be opened again.
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        segment_bytes: u64,
    ) -> Result<(LogStore, oneshot::Receiver<()>), OpenStoreError> {
        let io = |source| OpenStoreError::Io { dir: dir.to_owned(), source };
        disk.create_dir_all(dir).map_err(io)?;
        if let Some(parent) = dir.parent() {
            disk.sync_dir(parent).map_err(io)?;
        }
        let names = disk.list(dir).map_err(io)?;
        let in_use = names
            .iter()
            .any(|entry| log_segment::is_segment(&entry.name) || snapshot::is_snapshot(&entry.name));
        let (state_file, state) = HardStateFile::open(&*disk, dir, in_use)?;
        let bounds =
            Bounds { first: state.purged.map_or(0, |purged| purged.index + 1), durable: state.durable };
        let log = LogFiles::open(Arc::clone(&disk), dir, segment_bytes, bounds)?;
        let ballast = Ballast::new(disk, dir);
        let committed = state.committed.max(log.committed_at_open()).min(log.next());
        let memory = Memory {
            vote: state.vote,
            purged: state.purged,
            last: log_id_below(&log, log.next())?.or(state.purged),
            committed: log_id_below(&log, committed)?,
            log_bytes: log.bytes(),
            ..Memory::default()
        };
        let status = Arc::new(ThreadStatus::default());
        let (commands, receiver) = mpsc::channel();
        let (ended, has_ended) = oneshot::channel();
        let thread = LogThread::new(log, state_file, state, Arc::clone(&status), ballast);
        std::thread::Builder::new()
            .name("metadata-log".into())
            .stack_size(THREAD_STACK_BYTES)
            .spawn(move || {
                thread.run(&receiver);
                // Nobody may be waiting for the end.
                let _ = ended.send(());
            })
            .map_err(io)?;
        Ok((LogStore { memory: Arc::new(Mutex::new(memory)), status, commands }, has_ended))
    }

    /// Gives a log that is empty its first entry, the same on every voter: who votes. Returns when it is durable.
    pub async fn begin(&self, membership: Membership) -> io::Result<()> {
        let entry = Entry { log_id: LogId::default(), payload: EntryPayload::Membership(membership) };
        let (done, durable) = oneshot::channel();
        let payloads = vec![encode(&entry)];
        {
            let mut memory = self.memory();
            assert!(memory.last.is_none() && memory.purged.is_none(), "the log has begun");
            memory.log_bytes += payloads.iter().map(|payload| payload.len() as u64).sum::<u64>();
            memory.push(entry);
            let flushed = Flushed::Store(done);
            let append = Command::Append { first: 0, payloads, committed: 0, flushed };
            self.commands.send(append).map_err(|_| io::Error::other("the metadata log is closed"))?;
        }
        durable.await.map_err(|_| io::Error::other("the metadata log is closed"))?
    }

    /// The last entry, be it durable or not.
    pub fn last_log_id(&self) -> Option<LogId> {
        let memory = self.memory();
        memory.last.max(memory.purged)
    }

    /// Lets appends that wait for room on the disk fail, so that the process can stop.
    pub fn stop_waiting_for_room(&self) {
        self.status.stopping.store(true, Ordering::Relaxed);
    }

    /// Ends the thread after what was sent before.
    pub fn stop(&self) {
        self.stop_waiting_for_room();
        let committed = self.memory().committed.map_or(0, |committed| committed.index + 1);
        // The thread may have ended already.
        let _ = self.commands.send(Command::Stop { committed });
    }

    /// Whether appends wait for room on the disk.
    pub fn disk_is_full(&self) -> bool {
        self.status.disk_is_full.load(Ordering::Relaxed)
    }

    /// A measure of how far the log has grown: its bytes when it was opened and all that was appended since.
    pub fn log_bytes(&self) -> u64 {
        self.memory().log_bytes
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn ask<T>(&self, command: impl FnOnce(Done<T>) -> Command) -> io::Result<T> {
        let (done, answer) = oneshot::channel();
        let gone = || io::Error::other("the metadata log is closed");
        self.commands.send(command(done)).map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }

    async fn read(&self, from: u64, to: u64, max_bytes: u64) -> Result<Vec<Entry>, StorageError> {
        let (from, to) = {
            let memory = self.memory();
            let from = from.max(memory.purged.map_or(0, |purged| purged.index + 1));
            let to = to.min(memory.last.map_or(0, |last| last.index + 1));
            if from >= to {
                return Ok(Vec::new());
            }
            if let Some(entries) = memory.recent(from, to, max_bytes) {
                return Ok(entries);
            }
            (from, to)
        };
        let failed = |error: AnyError| StorageError::from(StorageIOError::read_log_at_index(from, error));
        let frames = self.ask(|done| Command::Read { from, to, max_bytes, done }).await;
        let frames = frames.map_err(|error| failed(AnyError::new(&error)))?;
        let entries: Result<Vec<Entry>, codec::DecodeError> =
            frames.into_iter().map(|frame| codec::get_entry(frame.index, frame.payload)).collect();
        entries.map_err(|error| failed(AnyError::new(&error)))
    }
}

/// The log id of the last entry below `next`, if the log has it.
fn log_id_below(log: &LogFiles, next: u64) -> Result<Option<LogId>, OpenStoreError> {
    let Some(index) = next.checked_sub(1).filter(|index| *index >= log.first()) else {
        return Ok(None);
    };
    let frames = log.read(index, next, 0).map_err(|error| OpenStoreError::Log(error.into()))?;
    match frames.into_iter().next() {
        Some(frame) => Ok(Some(codec::get_entry(frame.index, frame.payload)?.log_id)),
        None => Ok(None),
    }
}

impl Memory {
    /// The entries of `from..to`, when all that are asked for are in memory.
    fn recent(&self, from: u64, to: u64, max_bytes: u64) -> Option<Vec<Entry>> {
        let first = self.recent.front()?.log_id.index;
        let skip = usize::try_from(from.checked_sub(first)?).ok()?;
        let mut left = usize::try_from(max_bytes).unwrap_or(usize::MAX);
        let mut entries = Vec::new();
        for entry in self.recent.range(skip..).take_while(|entry| entry.log_id.index < to) {
            let size = memory_size(entry);
            if size > left && !entries.is_empty() {
                break;
            }
            left = left.saturating_sub(size);
            entries.push(entry.clone());
        }
        Some(entries)
    }

    fn push(&mut self, entry: Entry) {
        if self.recent.back().is_some_and(|last| last.log_id.index + 1 != entry.log_id.index) {
            self.recent.clear();
            self.recent_bytes = 0;
        }
        self.last = Some(entry.log_id);
        self.recent_bytes += memory_size(&entry);
        self.recent.push_back(entry);
    }

    /// Lets go of old entries beyond the bound, except for those from `keep_from` on.
    fn trim(&mut self, keep_from: u64) {
        while self.recent_bytes > RECENT_BYTES
            && let Some(oldest) = self.recent.pop_front_if(|oldest| oldest.log_id.index < keep_from)
        {
            self.recent_bytes -= memory_size(&oldest);
        }
    }

    fn forget_from(&mut self, since: u64) {
        while let Some(entry) = self.recent.pop_back_if(|last| last.log_id.index >= since) {
            self.recent_bytes -= memory_size(&entry);
        }
    }

    fn forget_upto(&mut self, upto: u64) {
        while let Some(entry) = self.recent.pop_front_if(|first| first.log_id.index <= upto) {
            self.recent_bytes -= memory_size(&entry);
        }
    }
}

fn memory_size(entry: &Entry) -> usize {
    let payload = match &entry.payload {
        EntryPayload::Normal(batch) => batch.records.len(),
        EntryPayload::Blank | EntryPayload::Membership(_) => 0,
    };
    size_of::<Entry>() + payload
}

fn encode(entry: &Entry) -> Bytes {
    let mut bytes = BytesMut::new();
    codec::put_entry(&mut bytes, entry);
    bytes.freeze()
}

impl RaftLogReader<Quorum> for LogStore {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<Entry>, StorageError> {
        let from = match range.start_bound() {
            Bound::Included(from) => *from,
            Bound::Excluded(before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let to = match range.end_bound() {
            Bound::Included(last) => last.saturating_add(1),
            Bound::Excluded(to) => *to,
            Bound::Unbounded => u64::MAX,
        };
        self.read(from, to, u64::MAX).await
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> Result<Vec<Entry>, StorageError> {
        self.read(start, end, READ_BYTES).await
    }
}

impl RaftLogStorage<Quorum> for LogStore {
    type LogReader = LogStore;

    async fn get_log_state(&mut self) -> Result<LogState<Quorum>, StorageError> {
        let memory = self.memory();
        Ok(LogState { last_purged_log_id: memory.purged, last_log_id: memory.last.max(memory.purged) })
    }

    async fn get_log_reader(&mut self) -> LogStore {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), StorageError> {
        let vote = *vote;
        let saved = self.ask(|done| Command::SaveVote { vote, done }).await;
        saved.map_err(|error| StorageIOError::write_vote(AnyError::new(&error)))?;
        self.memory().vote = Some(vote);
        Ok(())
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, StorageError> {
        Ok(self.memory().vote)
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), StorageError> {
        // It reaches the disk with the next entry or a clean stop: an older one only means to learn it again.
        let mut memory = self.memory();
        // What was committed just now is about to be read to be applied.
        let keep_from = memory.committed.map_or(0, |before| before.index + 1);
        memory.trim(keep_from);
        memory.committed = committed;
        Ok(())
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, StorageError> {
        Ok(self.memory().committed)
    }

    async fn append<I>(&mut self, entries: I, callback: LogFlushed<Quorum>) -> Result<(), StorageError>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut memory = self.memory();
        let mut payloads = Vec::new();
        let mut first = None;
        for mut entry in entries {
            if let EntryPayload::Normal(batch) = &mut entry.payload {
                batch.settle(entry.log_id.leader_id.term);
            }
            let payload = encode(&entry);
            memory.log_bytes += payload.len() as u64;
            payloads.push(payload);
            first.get_or_insert(entry.log_id.index);
            memory.push(entry);
        }
        let committed = memory.committed.map_or(0, |committed| committed.index + 1);
        let Some(first) = first else {
            callback.log_io_completed(Ok(()));
            return Ok(());
        };
        let append = Command::Append { first, payloads, committed, flushed: Flushed::Raft(callback) };
        // Sent under the lock, so that the log's order is the memory's. A callback that is lost with the thread tells
        // openraft as much as one that reports an error.
        self.commands
            .send(append)
            .map_err(|_| StorageIOError::write_logs(AnyError::error("the metadata log is closed")).into())
    }

    async fn truncate(&mut self, log_id: LogId) -> Result<(), StorageError> {
        let since = log_id.index;
        let failed = |error: io::Error| StorageIOError::<RaftNodeId>::write_logs(AnyError::new(&error));
        if self.memory().last.is_none_or(|last| last.index < since) {
            return Ok(());
        }
        let before = self.read(since.saturating_sub(1), since, 0).await?;
        self.ask(|done| Command::Truncate { since, done }).await.map_err(failed)?;
        let mut memory = self.memory();
        memory.forget_from(since);
        memory.last = before.first().map(|entry| entry.log_id).or(memory.purged);
        Ok(())
    }

    async fn purge(&mut self, log_id: LogId) -> Result<(), StorageError> {
        let failed = |error: io::Error| StorageIOError::<RaftNodeId>::write_logs(AnyError::new(&error));
        self.ask(|done| Command::Purge { upto: log_id, done }).await.map_err(failed)?;
        let mut memory = self.memory();
        memory.purged = memory.purged.max(Some(log_id));
        memory.forget_upto(log_id.index);
        Ok(())
    }
}
