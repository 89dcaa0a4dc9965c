//! A snapshot that a leader sends in pieces, until it is whole.
//!
//! Invariants: pieces are put in their order and none twice; what a broken connection leaves behind is gone on with when
//! the same leader offers the same snapshot again; one piece is in work at a time.

use std::io;
use std::sync::{Mutex, PoisonError};

use openraft::Snapshot;

use crate::controller::raft_types::{Quorum, Raft, SnapshotMeta, Vote};
use crate::controller::rpc::Refusal;
use crate::controller::snapshot::SnapshotFile;
use crate::wire::messages::RaftSnapshotRequest;

/// How far a snapshot is.
#[derive(Debug, Default)]
pub struct Receiving {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Nothing,
    Part(Part),
    /// Somebody works on it.
    Busy,
}

#[derive(Debug)]
struct Part {
    id: String,
    vote: Vote,
    size: u64,
    file: SnapshotFile,
    next: u64,
}

/// What became of a piece.
#[derive(Debug, PartialEq, Eq)]
pub enum Progress {
    /// The next piece begins here.
    Next(u64),
    /// The snapshot is installed, or was not to be, for this vote.
    Done(Vote),
}

impl Receiving {
    /// Takes a piece, which may be empty to ask how far this node is.
    pub async fn take(
        &self,
        raft: &Raft,
        vote: Vote,
        meta: SnapshotMeta,
        piece: &RaftSnapshotRequest,
    ) -> Result<Progress, Refusal> {
        let size = u64::try_from(piece.size).map_err(|_| Refusal::Malformed)?;
        let state = std::mem::replace(&mut *self.lock(), State::Busy);
        let part = match state {
            State::Busy => return Err(Refusal::Unable),
            State::Part(part) if part.id == meta.snapshot_id && part.vote == vote && part.size == size => {
                Ok(part)
            }
            State::Part(_) | State::Nothing => begin(raft, vote, &meta, size).await,
        };
        let outcome = match part {
            Ok(part) => put(part, piece).await,
            Err(refusal) => Err(refusal),
        };
        let part = match outcome {
            Ok(part) => part,
            Err(refusal) => {
                *self.lock() = State::Nothing;
                return Err(refusal);
            }
        };
        if part.next < part.size {
            let next = part.next;
            *self.lock() = State::Part(part);
            return Ok(Progress::Next(next));
        }
        let snapshot: Snapshot<Quorum> = Snapshot { meta, snapshot: Box::new(part.file) };
        let installed = raft.install_full_snapshot(vote, snapshot).await;
        *self.lock() = State::Nothing;
        match installed {
            Ok(response) => Ok(Progress::Done(response.vote)),
            Err(_) => Err(Refusal::Unable),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn begin(raft: &Raft, vote: Vote, meta: &SnapshotMeta, size: u64) -> Result<Part, Refusal> {
    let file = raft.begin_receiving_snapshot().await.map_err(|_| Refusal::Unable)?;
    tracing::info!("Receiving a snapshot of the metadata, {size} bytes");
    Ok(Part { id: meta.snapshot_id.clone(), vote, size, file: *file, next: 0 })
}

/// Puts a piece that is the next one; any other is left, and the sender learns where to go on.
async fn put(mut part: Part, piece: &RaftSnapshotRequest) -> Result<Part, Refusal> {
    let chunk = piece.chunk.clone();
    let is_next = u64::try_from(piece.offset) == Ok(part.next);
    if chunk.is_empty() || !is_next || chunk.len() as u64 > part.size - part.next {
        return Ok(part);
    }
    let written = tokio::task::spawn_blocking(move || {
        part.file.write_chunk(part.next, &chunk)?;
        part.next += chunk.len() as u64;
        Ok::<_, io::Error>(part)
    });
    match written.await {
        Ok(Ok(part)) => Ok(part),
        Ok(Err(error)) => {
            tracing::warn!("A snapshot of the metadata could not be written: {error}");
            Err(Refusal::Unable)
        }
        Err(_) => Err(Refusal::Unable),
    }
}
