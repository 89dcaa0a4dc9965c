//! A snapshot that a leader sends in pieces, until it is whole.
//!
//! Invariants: pieces are put in their order and none twice; what a broken connection leaves behind is gone on with when
//! the same leader offers the same snapshot again; one piece is in work at a time, to its end, also when nobody waits for the
//! answer any more.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use openraft::Snapshot;

use crate::controller::raft_types::{Quorum, Raft, SnapshotMeta, Vote};
use crate::controller::rpc::Refusal;
use crate::controller::snapshot::SnapshotFile;
use crate::wire::messages::RaftSnapshotRequest;

/// How far a snapshot is; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Receiving {
    state: Arc<Mutex<State>>,
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
        let (turn, state) = self.turn()?;
        // The connection may break meanwhile, and its handler with it. All snapshots are received in one file, so none may
        // begin while a piece of another is still being written.
        let (raft, piece) = (raft.clone(), piece.clone());
        let worked = tokio::spawn(async move { work(turn, state, &raft, vote, meta, size, &piece).await });
        worked.await.unwrap_or(Err(Refusal::Unable))
    }

    fn turn(&self) -> Result<(Turn, State), Refusal> {
        match std::mem::replace(&mut *self.lock(), State::Busy) {
            State::Busy => Err(Refusal::Unable),
            state => Ok((Turn { receiving: self.clone(), leaves: State::Nothing }, state)),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to work on the snapshot. However the work ends, the next one may begin.
struct Turn {
    receiving: Receiving,
    /// What the next one finds.
    leaves: State,
}

impl Drop for Turn {
    fn drop(&mut self) {
        *self.receiving.lock() = std::mem::take(&mut self.leaves);
    }
}

async fn work(
    mut turn: Turn,
    state: State,
    raft: &Raft,
    vote: Vote,
    meta: SnapshotMeta,
    size: u64,
    piece: &RaftSnapshotRequest,
) -> Result<Progress, Refusal> {
    let part = match state {
        State::Part(part) if part.id == meta.snapshot_id && part.vote == vote && part.size == size => part,
        State::Part(_) | State::Nothing | State::Busy => begin(raft, vote, &meta, size).await?,
    };
    let part = put(part, piece).await?;
    if part.next < part.size {
        let next = part.next;
        turn.leaves = State::Part(part);
        return Ok(Progress::Next(next));
    }
    let snapshot: Snapshot<Quorum> = Snapshot { meta, snapshot: Box::new(part.file) };
    match raft.install_full_snapshot(vote, snapshot).await {
        Ok(response) => Ok(Progress::Done(response.vote)),
        Err(_) => Err(Refusal::Unable),
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
