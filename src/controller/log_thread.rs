//! The thread that owns the metadata log's files: it writes and syncs, so that no worker of the runtime ever waits for
//! the disk. Appends that wait together are written together and synced once.
//!
//! Knows commands and files, nothing of Raft's rules. Invariants: commands take effect in the order in which they were
//! sent; an answer that says "done" is sent after the sync; after a failed write or sync every later command fails.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use bytes::Bytes;
use openraft::storage::LogFlushed;
use tokio::sync::oneshot;

use crate::controller::ballast::Ballast;
use crate::controller::frame::Frame;
use crate::controller::hard_state::{HardState, HardStateFile};
use crate::controller::log_files::LogFiles;
use crate::controller::raft_types::{LogId, Quorum, Vote};
use crate::storage::disk;

/// How long a full disk is waited for before it is tried again.
const FULL_DISK_PAUSE: Duration = Duration::from_millis(200);

/// An answer that is sent once the command is durable.
pub type Done<T> = oneshot::Sender<io::Result<T>>;

/// Whoever waits for an append to be durable.
pub enum Flushed {
    Raft(LogFlushed<Quorum>),
    Store(Done<()>),
}

impl Flushed {
    fn complete(self, result: io::Result<()>) {
        match self {
            Flushed::Raft(callback) => callback.log_io_completed(result),
            Flushed::Store(done) => answer(done, result),
        }
    }
}

pub enum Command {
    Append {
        first: u64,
        payloads: Vec<Bytes>,
        committed: u64,
        flushed: Flushed,
    },
    SaveVote {
        vote: Vote,
        done: Done<()>,
    },
    Truncate {
        since: u64,
        done: Done<()>,
    },
    Purge {
        upto: LogId,
        done: Done<()>,
    },
    Read {
        from: u64,
        to: u64,
        max_bytes: u64,
        done: Done<Vec<Frame>>,
    },
    /// Writes down where the log ends, as a clean stop does, and ends the thread.
    Stop {
        committed: u64,
    },
}

/// What the thread and its front share.
#[derive(Debug, Default)]
pub struct ThreadStatus {
    /// Set while an append waits for room on the disk.
    pub disk_is_full: AtomicBool,
    /// Set when the process stops: a wait for room is given up.
    pub stopping: AtomicBool,
}

pub struct LogThread {
    log: LogFiles,
    state_file: HardStateFile,
    state: HardState,
    status: Arc<ThreadStatus>,
    ballast: Ballast,
    /// It was told that some of the ballast was given up.
    has_given: bool,
    /// Why the disk is not to be trusted any more.
    failure: Option<(io::ErrorKind, String)>,
    /// Appends that are written but not synced.
    unsynced: Vec<Flushed>,
}

impl LogThread {
    pub fn new(
        log: LogFiles,
        state_file: HardStateFile,
        state: HardState,
        status: Arc<ThreadStatus>,
        ballast: Ballast,
    ) -> LogThread {
        let (has_given, failure, unsynced) = (false, None, Vec::new());
        LogThread { log, state_file, state, status, ballast, has_given, failure, unsynced }
    }

    /// Serves commands until `Stop` or until nobody can send any more.
    pub fn run(mut self, commands: &Receiver<Command>) {
        while let Ok(command) = commands.recv() {
            let mut next = Some(command);
            while let Some(command) = next {
                if let Command::Stop { committed } = command {
                    self.sync_appended();
                    self.close(committed);
                    return;
                }
                self.serve(command);
                next = commands.try_recv().ok();
            }
            self.sync_appended();
        }
    }

    fn serve(&mut self, command: Command) {
        match command {
            Command::Append { first, payloads, committed, flushed } => {
                match self.attempt(|thread| thread.append(first, &payloads, committed)) {
                    Ok(()) => self.unsynced.push(flushed),
                    Err(error) => flushed.complete(Err(error)),
                }
            }
            Command::SaveVote { vote, done } => {
                self.sync_appended();
                let result = self.attempt(|thread| {
                    thread.state.vote = Some(vote);
                    thread.save_state()
                });
                answer(done, result);
            }
            Command::Truncate { since, done } => {
                self.sync_appended();
                answer(done, self.attempt(|thread| thread.truncate(since)));
            }
            Command::Purge { upto, done } => {
                self.sync_appended();
                answer(done, self.attempt(|thread| thread.purge(upto)));
            }
            Command::Read { from, to, max_bytes, done } => {
                let frames = self.log.read(from, to, max_bytes);
                answer(done, frames.map_err(io::Error::other));
            }
            Command::Stop { .. } => unreachable!("run handles it"),
        }
    }

    /// Does `work`, unless the disk has failed before; if it fails now, this is remembered.
    fn attempt<T>(&mut self, work: impl FnOnce(&mut LogThread) -> io::Result<T>) -> io::Result<T> {
        if let Some((kind, message)) = &self.failure {
            return Err(io::Error::new(*kind, message.clone()));
        }
        work(self).inspect_err(|error| {
            tracing::error!(%error, "the metadata log cannot be written; it is not used any more");
            self.failure = Some((error.kind(), error.to_string()));
        })
    }

    fn append(&mut self, first: u64, payloads: &[Bytes], committed: u64) -> io::Result<()> {
        while let Err(error) = self.log.append(first, payloads, committed) {
            self.make_room(error)?;
        }
        self.note_room();
        Ok(())
    }

    /// After a write that found no room: some of the ballast is given up, and once that is used up room is waited for, since
    /// nothing is lost by it. Fails when room is not what is lacking, or the process stops.
    fn make_room(&mut self, error: io::Error) -> io::Result<()> {
        if !disk::is_full(&error) {
            return Err(error);
        }
        if self.ballast.give() {
            if !std::mem::replace(&mut self.has_given, true) {
                tracing::error!("no room for the metadata log but what was kept for it");
            }
            return Ok(());
        }
        if self.status.stopping.load(Ordering::Relaxed) {
            return Err(error);
        }
        if !self.status.disk_is_full.swap(true, Ordering::Relaxed) {
            tracing::error!("no room for the metadata log; changes wait until there is");
        }
        std::thread::sleep(FULL_DISK_PAUSE);
        Ok(())
    }

    /// After a write that found room.
    fn note_room(&mut self) {
        if self.status.disk_is_full.swap(false, Ordering::Relaxed) {
            tracing::info!("there is room for the metadata log again");
        }
        if !self.ballast.is_whole() && self.ballast.refill() {
            self.has_given = false;
        }
    }

    /// Syncs what was appended and tells those who wait for it.
    fn sync_appended(&mut self) {
        if self.unsynced.is_empty() {
            return;
        }
        let result = self.attempt(|thread| thread.log.sync());
        for flushed in self.unsynced.drain(..) {
            flushed.complete(match &result {
                Ok(()) => Ok(()),
                Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
            });
        }
    }

    fn save_state(&mut self) -> io::Result<()> {
        self.state.durable = self.log.durable();
        self.save()
    }

    /// Some file systems need room even for what takes the place of something as long.
    fn save(&mut self) -> io::Result<()> {
        while let Err(error) = self.state_file.save(&self.state) {
            self.make_room(error)?;
        }
        self.note_room();
        Ok(())
    }

    fn truncate(&mut self, since: u64) -> io::Result<()> {
        // First the promise, then the entries: the other way round a crash would leave a log that seems to have lost some.
        self.state.durable = self.state.durable.min(since);
        self.save()?;
        self.log.truncate(since)
    }

    fn purge(&mut self, upto: LogId) -> io::Result<()> {
        self.state.purged = self.state.purged.max(Some(upto));
        self.save_state()?;
        self.log.purge(upto.index + 1)?;
        Ok(())
    }

    fn close(&mut self, committed: u64) {
        self.state.committed = self.state.committed.max(committed);
        // Only a restart is a little slower without it; the failure has been logged.
        let _ = self.attempt(LogThread::save_state);
    }
}

/// Answers one who may have stopped waiting.
fn answer<T>(done: Done<T>, result: io::Result<T>) {
    let _ = done.send(result);
}
