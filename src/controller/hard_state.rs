//! The file `raft-state`: the vote and the bounds of the log, which Raft must not forget.
//!
//! Two slots of 512 bytes at 0 and 4096, written in turn and in place, so that a torn write leaves the other one: one
//! write and one sync per vote. A slot, big-endian:
//!
//! ```text
//!  0  u32  magic "FMRS"
//!  4  u32  CRC-32C of all that follows in the slot
//!  8  u64  sequence; of two whole slots the higher one counts
//! 16       vote, last purged log id (as in `codec`), durable u64, committed u64, zeros
//! ```
//!
//! Knows nothing of entries. Invariant: after `save` has returned, and after any later crash, `open` finds that state or
//! a later one.

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::controller::codec::{
    DecodeError, get_optional_log_id, get_optional_vote, put_optional_log_id, put_optional_vote,
};
use crate::controller::raft_types::{LogId, Vote};
use crate::storage::disk::{Disk, DiskFile, OpenMode};

pub const FILE_NAME: &str = "raft-state";
const MAGIC: u32 = u32::from_be_bytes(*b"FMRS");
const SLOT_LEN: usize = 512;
const SLOT_AT: [u64; 2] = [0, 4096];
const FILE_LEN: u64 = 8192;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HardState {
    pub vote: Option<Vote>,
    /// The last entry that was purged from the log.
    pub purged: Option<LogId>,
    /// Entries below this index had been synced.
    pub durable: u64,
    /// Entries below this index were known to be committed.
    pub committed: u64,
}

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenStateError {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("{path} is damaged: neither copy of the vote can be read")]
    Damaged { path: PathBuf },
}

#[derive(Debug)]
pub struct HardStateFile {
    file: Arc<dyn DiskFile>,
    sequence: u64,
}

impl HardStateFile {
    /// Opens the file in `dir`. Without one it is made, unless `must_exist`: a log without its vote is not to be used.
    pub fn open(
        disk: &dyn Disk,
        dir: &Path,
        must_exist: bool,
    ) -> Result<(HardStateFile, HardState), OpenStateError> {
        let path = dir.join(FILE_NAME);
        let io = |source| OpenStateError::Io { path: path.clone(), source };
        match disk.open(&path, OpenMode::Write) {
            Ok(file) => {
                if let Some((sequence, state)) = read_newest(&*file).map_err(io)? {
                    // Both may be in memory only, after the process was killed.
                    file.sync_data().map_err(io)?;
                    disk.sync_dir(dir).map_err(io)?;
                    return Ok((HardStateFile { file, sequence }, state));
                }
                if must_exist {
                    return Err(OpenStateError::Damaged { path });
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound && !must_exist => {}
            Err(error) => return Err(io(error)),
        }
        let file = disk.open(&path, OpenMode::Truncate).map_err(io)?;
        let mut state_file = HardStateFile { file, sequence: 0 };
        let state = HardState::default();
        state_file.create(&state).map_err(io)?;
        disk.sync_dir(dir).map_err(io)?;
        Ok((state_file, state))
    }

    fn create(&mut self, state: &HardState) -> io::Result<()> {
        // At its full length from the start, so that syncing a slot later changes no metadata of the file.
        self.file.write_all_at(&[IoSlice::new(&vec![0; FILE_LEN as usize])], 0)?;
        self.save(state)
    }

    /// Makes `state` durable. After an error that is not for lack of room the file must not be used again. The next attempt
    /// writes over the slot that has failed, so that the other one stays whole.
    pub fn save(&mut self, state: &HardState) -> io::Result<()> {
        let sequence = self.sequence + 1;
        let slot = encode(sequence, state);
        let at = SLOT_AT[usize::from(sequence % 2 == 1)];
        self.file.write_all_at(&[IoSlice::new(&slot)], at)?;
        self.file.sync_data()?;
        self.sequence = sequence;
        Ok(())
    }
}

/// Reads the state without changing anything, for looking at a directory from outside.
pub fn peek(disk: &dyn Disk, dir: &Path) -> Result<HardState, OpenStateError> {
    let path = dir.join(FILE_NAME);
    let io = |source| OpenStateError::Io { path: path.clone(), source };
    let file = disk.open(&path, OpenMode::Read).map_err(io)?;
    match read_newest(&*file).map_err(io)? {
        Some((_, state)) => Ok(state),
        None => Err(OpenStateError::Damaged { path }),
    }
}

fn read_newest(file: &dyn DiskFile) -> io::Result<Option<(u64, HardState)>> {
    let mut newest: Option<(u64, HardState)> = None;
    for at in SLOT_AT {
        let slot = Bytes::from(file.read_vec(SLOT_LEN, at)?);
        if let Some(found) = decode(&slot)
            && newest.as_ref().is_none_or(|newest| found.0 > newest.0)
        {
            newest = Some(found);
        }
    }
    Ok(newest)
}

fn encode(sequence: u64, state: &HardState) -> BytesMut {
    let mut slot = BytesMut::with_capacity(SLOT_LEN);
    slot.put_u32(MAGIC);
    slot.put_u32(0);
    slot.put_u64(sequence);
    put_optional_vote(&mut slot, state.vote);
    put_optional_log_id(&mut slot, state.purged);
    slot.put_u64(state.durable);
    slot.put_u64(state.committed);
    slot.resize(SLOT_LEN, 0);
    let crc = crc32c::crc32c(&slot[8..]);
    slot[4..8].copy_from_slice(&crc.to_be_bytes());
    slot
}

fn decode(slot: &Bytes) -> Option<(u64, HardState)> {
    if slot.len() != SLOT_LEN {
        return None;
    }
    let mut from = slot.clone();
    if from.get_u32() != MAGIC || from.get_u32() != crc32c::crc32c(&slot[8..]) {
        return None;
    }
    let sequence = from.get_u64();
    decode_state(&mut from).ok().map(|state| (sequence, state))
}

fn decode_state(from: &mut Bytes) -> Result<HardState, DecodeError> {
    Ok(HardState {
        vote: get_optional_vote(from)?,
        purged: get_optional_log_id(from)?,
        durable: from.try_get_u64()?,
        committed: from.try_get_u64()?,
    })
}
