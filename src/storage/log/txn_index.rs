//! The transaction index of a segment: the transactions that were aborted by a marker in the segment, 34 bytes each
//! (version 0, producer id, first and last offset, last stable offset when the marker came). The file exists only when the
//! segment has an aborted transaction.
//!
//! Invariants: last offsets increase strictly; what is behind the entries that count is read by nobody.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::lazy_file::{LazyFile, Place};
use super::names::{Kind, Stage};
use crate::types::{Offset, ProducerId};

const ENTRY_LEN: usize = 34;
const VERSION: i16 = 0;

/// A transaction that was aborted, as its partition saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTxn {
    pub producer_id: ProducerId,
    pub first_offset: Offset,
    /// The offset of the abort marker.
    pub last_offset: Offset,
    /// The last stable offset once the marker was appended.
    pub last_stable_offset: Offset,
}

#[derive(Debug)]
pub struct TxnIndex {
    file: LazyFile,
    /// Entries in the file that count. Written by the log's writer only.
    len: AtomicU32,
    /// Changed since it was synced; at first nobody knows.
    dirty: AtomicBool,
}

impl TxnIndex {
    /// The index in a file of `size` bytes; 0 when there is no file.
    pub fn new(place: Arc<Place>, base: Offset, size: u64, stage: Stage) -> TxnIndex {
        let len = u32::try_from(size / ENTRY_LEN as u64).unwrap_or(u32::MAX);
        TxnIndex {
            file: LazyFile::new(place, base, Kind::TxnIndex, stage),
            len: AtomicU32::new(len),
            dirty: AtomicBool::new(len > 0),
        }
    }

    pub fn file(&self) -> &LazyFile {
        &self.file
    }

    pub fn is_empty(&self) -> bool {
        self.len.load(Ordering::Acquire) == 0
    }

    /// Adds a transaction; makes the file if there was none (`true`).
    pub fn push(&self, txn: AbortedTxn) -> io::Result<bool> {
        self.prepare(&[txn])?;
        Ok(self.count_in(1))
    }

    /// Writes transactions that count only when their markers are written: then nothing can be missing for want of room. They
    /// replace what was prepared before, and when the process dies first, opening the log drops them.
    pub fn prepare(&self, txns: &[AbortedTxn]) -> io::Result<()> {
        if txns.is_empty() {
            return Ok(());
        }
        let entries: Vec<u8> = txns.iter().flat_map(encode).collect();
        self.file.change(|file| file.write_all_at(&[IoSlice::new(&entries)], self.counted_bytes()))
    }

    /// From now on the next `count` transactions that were prepared count. `true` when they are the first.
    pub fn count_in(&self, count: usize) -> bool {
        if count == 0 {
            return false;
        }
        let len = self.len.load(Ordering::Acquire);
        self.len.store(len.saturating_add(u32::try_from(count).unwrap_or(u32::MAX)), Ordering::Release);
        self.dirty.store(true, Ordering::Release);
        len == 0
    }

    /// Cuts off what was prepared, or a part of it.
    pub fn undo(&self) -> io::Result<()> {
        let counted = self.counted_bytes();
        if let Some(size) = self.file.size()? {
            if size > counted {
                self.file.change(|file| file.set_len(counted))?;
            }
            self.dirty.store(true, Ordering::Release);
        }
        Ok(())
    }

    fn counted_bytes(&self) -> u64 {
        u64::from(self.len.load(Ordering::Acquire)) * ENTRY_LEN as u64
    }

    /// All transactions, oldest first.
    pub fn read_all(&self) -> io::Result<Vec<AbortedTxn>> {
        self.read_bytes()?.as_chunks::<ENTRY_LEN>().0.iter().map(decode).collect()
    }

    fn read_bytes(&self) -> io::Result<Vec<u8>> {
        match self.len.load(Ordering::Acquire) as usize {
            0 => Ok(Vec::new()),
            len => self.file.get()?.read_vec(len * ENTRY_LEN, 0),
        }
    }

    /// The marker's offset of the last transaction.
    pub fn last_offset(&self) -> io::Result<Option<Offset>> {
        Ok(self.read_all()?.last().map(|txn| txn.last_offset))
    }

    /// Adds to `found` the transactions that overlap the offsets from `from` to below `upto`. `true` when later segments
    /// cannot have more of them.
    pub fn collect(&self, from: Offset, upto: Offset, found: &mut Vec<AbortedTxn>) -> io::Result<bool> {
        for txn in self.read_all()? {
            if txn.last_offset >= from && txn.first_offset < upto {
                found.push(txn);
            }
            if txn.last_stable_offset >= upto {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Drops the transactions whose marker is at or above `offset`, and all from the first that cannot be one.
    pub fn truncate_to(&self, offset: Offset) -> io::Result<()> {
        let mut keep = 0;
        let mut last = Offset::UNKNOWN;
        for txn in self.read_bytes()?.as_chunks::<ENTRY_LEN>().0.iter().map(decode) {
            match txn {
                Ok(txn)
                    if last < txn.last_offset
                        && txn.first_offset < txn.last_offset
                        && txn.last_offset < offset =>
                {
                    last = txn.last_offset;
                    keep += 1;
                }
                _ => break,
            }
        }
        // A torn write may have left less than an entry at the end.
        if self.file.size()?.is_some_and(|size| size != u64::from(keep) * ENTRY_LEN as u64) {
            self.file.change(|file| file.set_len(u64::from(keep) * ENTRY_LEN as u64))?;
            self.len.store(keep, Ordering::Release);
            self.dirty.store(true, Ordering::Release);
        }
        Ok(())
    }

    pub fn sync(&self) -> io::Result<()> {
        if self.dirty.swap(false, Ordering::AcqRel) { self.file.sync_data() } else { Ok(()) }
    }
}

fn encode(txn: &AbortedTxn) -> [u8; ENTRY_LEN] {
    let mut entry = [0; ENTRY_LEN];
    entry[..2].copy_from_slice(&VERSION.to_be_bytes());
    entry[2..10].copy_from_slice(&txn.producer_id.0.to_be_bytes());
    entry[10..18].copy_from_slice(&txn.first_offset.0.to_be_bytes());
    entry[18..26].copy_from_slice(&txn.last_offset.0.to_be_bytes());
    entry[26..].copy_from_slice(&txn.last_stable_offset.0.to_be_bytes());
    entry
}

pub(super) fn decode(entry: &[u8; ENTRY_LEN]) -> io::Result<AbortedTxn> {
    let (version, fields) = entry.split_at(2);
    if version != VERSION.to_be_bytes() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "transaction index entry of an unknown version",
        ));
    }
    let (fields, _) = fields.as_chunks::<8>();
    let [producer_id, first, last, stable] =
        [0, 1, 2, 3].map(|field: usize| i64::from_be_bytes(fields[field]));
    Ok(AbortedTxn {
        producer_id: ProducerId(producer_id),
        first_offset: Offset(first),
        last_offset: Offset(last),
        last_stable_offset: Offset(stable),
    })
}
