//! Snapshots of the image: files that hold its records in Kafka's framing.
//!
//! A snapshot is named `<index, 20 digits>-<term, 10 digits>.snapshot` after the last entry that it holds. It opens with
//! 16 bytes, "FLOODMARK-SNAP" and a u16 format version (1). Blocks follow, all numbers big-endian:
//!
//! ```text
//!  0  u32  length of the payload
//!  4  u32  CRC-32C of the payload
//!  8       payload
//! ```
//!
//! The first block tells what the snapshot is of: the image's version (u64), then the last log id and the membership as
//! in `codec`. The payload of every other block begins with a kind (u8): 1, records, each behind its length (u32); or 2,
//! the end of the file, with the number of all records (u64).
//!
//! Knows nothing of what records mean. Invariant: a file under a snapshot's name is whole and durable; what is being
//! written or received has the suffix `.tmp`.

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use openraft::LogIdOptionExt;

use crate::controller::codec::{self, DecodeError};
use crate::controller::raft_types::{LogId, SnapshotMeta, StoredMembership, put_record, split_records};
use crate::storage::disk::{Disk, DiskFile, OpenMode};

const SUFFIX: &str = ".snapshot";
const TMP_SUFFIX: &str = ".snapshot.tmp";
const HEADER: [u8; 16] = *b"FLOODMARK-SNAP\0\x01";
/// Records are gathered to blocks of about this size.
const BLOCK_BYTES: usize = 256 * 1024;
/// More than any block has: one record is bounded by the size of a request.
const MAX_BLOCK_BYTES: usize = 1 << 30;
const KIND_RECORDS: u8 = 1;
const KIND_END: u8 = 2;

/// What a snapshot is of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    pub version: u64,
    pub last: Option<LogId>,
    pub membership: StoredMembership,
}

impl Contents {
    pub fn meta(&self) -> SnapshotMeta {
        SnapshotMeta {
            last_log_id: self.last,
            last_membership: self.membership.clone(),
            snapshot_id: stem(self.last),
        }
    }
}

/// Why a snapshot cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadSnapshotError {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("{path} does not begin as a snapshot; it may have been written by a newer version")]
    NotASnapshot { path: PathBuf },
    #[error("the snapshot {path} is damaged at byte {position}: {what}")]
    Damaged { path: PathBuf, position: u64, what: String },
}

/// A snapshot's file: the current one, which stays readable while a peer is sent it though a newer one may replace it,
/// or one that is being received.
#[derive(Clone, Debug)]
pub struct SnapshotFile {
    path: PathBuf,
    file: Arc<dyn DiskFile>,
}

/// Whether a file of this name is a snapshot.
pub fn is_snapshot(name: &str) -> bool {
    name.ends_with(SUFFIX)
}

fn stem(last: Option<LogId>) -> String {
    let term = last.map_or(0, |last| last.leader_id.term);
    format!("{:020}-{term:010}", last.index().unwrap_or(0))
}

impl SnapshotFile {
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    /// Up to `max_bytes` from `position`, fewer only at the end: a chunk for a peer.
    pub fn read_chunk(&self, position: u64, max_bytes: usize) -> io::Result<Bytes> {
        self.file.read_vec(max_bytes, position).map(Bytes::from)
    }

    /// Puts a chunk received from a peer in its place.
    pub fn write_chunk(&self, position: u64, chunk: &[u8]) -> io::Result<()> {
        self.file.write_all_at(&[IoSlice::new(chunk)], position)
    }

    /// Reads the snapshot from its first to its last byte, handing each record to `record`.
    pub fn read(
        &self,
        mut record: impl FnMut(Bytes) -> Result<(), String>,
    ) -> Result<Contents, ReadSnapshotError> {
        let mut reader = Reader { snapshot: self, position: 0 };
        let contents = reader.contents()?;
        let mut count = 0;
        loop {
            let position = reader.position;
            let mut block = reader.block()?;
            let damaged = |what: &str| self.damaged(position, what);
            match block.try_get_u8().map_err(|_| damaged("an empty block"))? {
                KIND_RECORDS => {
                    for bytes in split_records(block).map_err(|error| damaged(&error.to_string()))? {
                        record(bytes).map_err(|error| damaged(&error))?;
                        count += 1;
                    }
                }
                KIND_END if block.try_get_u64() == Ok(count) && reader.is_at_end()? => return Ok(contents),
                KIND_END => return Err(damaged("its end does not match its records")),
                kind => return Err(damaged(&DecodeError::UnknownKind(kind).to_string())),
            }
        }
    }

    fn damaged(&self, position: u64, what: &str) -> ReadSnapshotError {
        ReadSnapshotError::Damaged { path: self.path.clone(), position, what: what.to_owned() }
    }

    fn io(&self, source: io::Error) -> ReadSnapshotError {
        ReadSnapshotError::Io { path: self.path.clone(), source }
    }
}

struct Reader<'a> {
    snapshot: &'a SnapshotFile,
    position: u64,
}

impl Reader<'_> {
    fn contents(&mut self) -> Result<Contents, ReadSnapshotError> {
        if self.bytes(HEADER.len())? != HEADER[..] {
            return Err(ReadSnapshotError::NotASnapshot { path: self.snapshot.path.clone() });
        }
        let position = self.position;
        let mut block = self.block()?;
        let contents = || -> Result<Contents, DecodeError> {
            let contents = Contents {
                version: block.try_get_u64()?,
                last: codec::get_optional_log_id(&mut block)?,
                membership: codec::get_stored_membership(&mut block)?,
            };
            codec::finish(contents, &block)
        }();
        contents.map_err(|error| self.snapshot.damaged(position, &error.to_string()))
    }

    fn block(&mut self) -> Result<Bytes, ReadSnapshotError> {
        let position = self.position;
        let mut header = self.bytes(8)?;
        let (len, crc) = (header.get_u32() as usize, header.get_u32());
        if len > MAX_BLOCK_BYTES {
            return Err(self.snapshot.damaged(position, "an impossible length"));
        }
        let payload = self.bytes(len)?;
        if crc32c::crc32c(&payload) != crc {
            return Err(self.snapshot.damaged(position, "its checksum does not match"));
        }
        Ok(payload)
    }

    fn bytes(&mut self, len: usize) -> Result<Bytes, ReadSnapshotError> {
        let left =
            self.snapshot.len().map_err(|error| self.snapshot.io(error))?.saturating_sub(self.position);
        if left < len as u64 {
            return Err(self.snapshot.damaged(self.position, "it ends too early"));
        }
        let bytes = self.snapshot.file.read_vec(len, self.position);
        self.position += len as u64;
        bytes.map(Bytes::from).map_err(|error| self.snapshot.io(error))
    }

    fn is_at_end(&self) -> Result<bool, ReadSnapshotError> {
        let len = self.snapshot.len().map_err(|error| self.snapshot.io(error))?;
        Ok(self.position == len)
    }
}

/// The snapshots of one directory, of which it keeps the newest.
#[derive(Clone, Debug)]
pub struct SnapshotDir {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
}

impl SnapshotDir {
    /// `dir` exists.
    pub fn new(disk: Arc<dyn Disk>, dir: &Path) -> SnapshotDir {
        SnapshotDir { disk, dir: dir.to_owned() }
    }

    /// The newest snapshot, if there is one.
    pub fn newest(&self) -> io::Result<Option<SnapshotFile>> {
        let Some(name) = self.names(SUFFIX)?.into_iter().max() else {
            return Ok(None);
        };
        self.open(&self.dir.join(name)).map(Some)
    }

    /// Removes what a crash left behind: unfinished snapshots, and those older than the newest.
    pub fn tidy(&self) -> io::Result<()> {
        let mut names = self.names(SUFFIX)?;
        names.sort_unstable();
        names.pop();
        names.extend(self.names(TMP_SUFFIX)?);
        for name in names {
            self.disk.remove_file(&self.dir.join(name))?;
        }
        Ok(())
    }

    fn names(&self, suffix: &str) -> io::Result<Vec<String>> {
        let names = self.disk.list(&self.dir)?.into_iter().map(|entry| entry.name);
        Ok(names.filter(|name| name.ends_with(suffix)).collect())
    }

    fn open(&self, path: &Path) -> io::Result<SnapshotFile> {
        let file = self.disk.open(path, OpenMode::Read)?;
        Ok(SnapshotFile { path: path.to_owned(), file })
    }

    /// Writes a snapshot and makes it the current one; older ones are removed.
    pub fn write(
        &self,
        contents: &Contents,
        records: impl Iterator<Item = io::Result<Bytes>>,
    ) -> io::Result<SnapshotFile> {
        let tmp = self.dir.join(format!("{}{TMP_SUFFIX}", stem(contents.last)));
        // What is there of it takes room on a disk that may be full.
        self.write_to(&tmp, contents, records).inspect_err(|_| drop(self.disk.remove_file(&tmp)))?;
        self.adopt(&tmp, contents.last)
    }

    fn write_to(
        &self,
        path: &Path,
        contents: &Contents,
        records: impl Iterator<Item = io::Result<Bytes>>,
    ) -> io::Result<()> {
        let file = self.disk.open(path, OpenMode::Truncate)?;
        let mut writer = Writer { file: &*file, position: 0 };
        writer.put(&HEADER)?;
        let mut block = BytesMut::new();
        block.put_u64(contents.version);
        codec::put_optional_log_id(&mut block, contents.last);
        codec::put_stored_membership(&mut block, &contents.membership);
        writer.block(&block)?;
        block.clear();
        block.put_u8(KIND_RECORDS);
        let mut count = 0u64;
        for record in records {
            put_record(&mut block, &record?);
            count += 1;
            if block.len() >= BLOCK_BYTES {
                writer.block(&block)?;
                block.truncate(1);
            }
        }
        if block.len() > 1 {
            writer.block(&block)?;
        }
        block.clear();
        block.put_u8(KIND_END);
        block.put_u64(count);
        writer.block(&block)?;
        file.sync_data()
    }

    /// A file for a snapshot that a peer is about to send.
    pub fn receive(&self) -> io::Result<SnapshotFile> {
        let path = self.dir.join(format!("received{TMP_SUFFIX}"));
        let file = self.disk.open(&path, OpenMode::Truncate)?;
        Ok(SnapshotFile { path, file })
    }

    /// Makes a snapshot that has been received and read through the current one; older ones are removed. One that lies
    /// elsewhere is copied.
    pub fn install(&self, received: &SnapshotFile, contents: &Contents) -> io::Result<SnapshotFile> {
        let is_ours =
            received.path.parent() == Some(&self.dir) && !is_snapshot(&received.path.to_string_lossy());
        let file = if is_ours { received.clone() } else { self.copy(received)? };
        file.file.sync_data()?;
        self.adopt(&file.path, contents.last)
    }

    fn copy(&self, from: &SnapshotFile) -> io::Result<SnapshotFile> {
        let to = self.receive()?;
        let mut position = 0;
        loop {
            let chunk = from.read_chunk(position, BLOCK_BYTES)?;
            if chunk.is_empty() {
                return Ok(to);
            }
            to.write_chunk(position, &chunk)?;
            position += chunk.len() as u64;
        }
    }

    /// Gives a whole and synced file its name.
    fn adopt(&self, tmp: &Path, last: Option<LogId>) -> io::Result<SnapshotFile> {
        let path = self.dir.join(format!("{}{SUFFIX}", stem(last)));
        self.disk.rename(tmp, &path)?;
        self.disk.sync_dir(&self.dir)?;
        let adopted = self.open(&path)?;
        for name in self.names(SUFFIX)? {
            let other = self.dir.join(name);
            if other != path {
                self.disk.remove_file(&other)?;
            }
        }
        Ok(adopted)
    }
}

struct Writer<'a> {
    file: &'a dyn DiskFile,
    position: u64,
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(&[IoSlice::new(bytes)], self.position)?;
        self.position += bytes.len() as u64;
        Ok(())
    }

    fn block(&mut self, payload: &[u8]) -> io::Result<()> {
        let len = u32::try_from(payload.len()).expect("a block is far below 4 GiB");
        self.put(&len.to_be_bytes())?;
        self.put(&crc32c::crc32c(payload).to_be_bytes())?;
        self.put(payload)
    }
}
