//! A file of fixed-size entries that only grows: what the offset and the time index have in common. Must not know what an
//! entry means, save that entries increase.
//!
//! Kafka maps these files into memory. We keep the newest entries in memory, write them out a page at a time, and
//! search the file with positional reads: no map, no handle for an idle log, and a crash costs only what recovery rebuilds
//! from the segment anyway.
//!
//! Invariant: `written` entries in the file followed by `pending` are the index; the file may have been extended by a
//! Kafka broker with zeros behind its last entry, which do not count and are cut off before anything is written.

use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex};

use super::lazy_file::{LazyFile, Place};
use super::names::{Kind, Stage};
use crate::storage::disk;
use crate::storage::locked;
use crate::types::Offset;

/// Pending bytes that are written out together.
const PENDING_BYTES: usize = 4096;

/// An index of entries of `N` bytes.
#[derive(Debug)]
pub struct IndexFile<const N: usize> {
    file: LazyFile,
    state: Mutex<State<N>>,
}

#[derive(Debug)]
struct State<const N: usize> {
    /// Entries in the file; `None` until the file was looked at.
    written: Option<u32>,
    /// The entries behind them.
    pending: Vec<u8>,
    last: Option<[u8; N]>,
    /// Behind the entries the file has something that is none.
    has_excess: bool,
}

impl<const N: usize> Default for State<N> {
    fn default() -> State<N> {
        State { written: None, pending: Vec::new(), last: None, has_excess: false }
    }
}

impl<const N: usize> IndexFile<N> {
    /// The index in a file that exists or will be made; looks at nothing yet.
    pub fn unopened(place: Arc<Place>, base: Offset, kind: Kind, stage: Stage) -> IndexFile<N> {
        IndexFile { file: LazyFile::new(place, base, kind, stage), state: Mutex::default() }
    }

    pub fn file(&self) -> &LazyFile {
        &self.file
    }

    /// Makes the file, empty.
    pub fn create(&self) -> io::Result<()> {
        self.file.create()?;
        self.file.release();
        *locked(&self.state) = State { written: Some(0), ..State::default() };
        Ok(())
    }

    /// How many entries there are. `increases` tells whether an entry may follow another; it finds the end of the index
    /// in a file that has something else behind it.
    pub fn len(&self, increases: fn(&[u8; N], &[u8; N]) -> bool) -> io::Result<u32> {
        let mut state = locked(&self.state);
        self.load(&mut state, increases)?;
        Ok(state.len())
    }

    pub fn last(&self, increases: fn(&[u8; N], &[u8; N]) -> bool) -> io::Result<Option<[u8; N]>> {
        let mut state = locked(&self.state);
        self.load(&mut state, increases)?;
        Ok(state.last)
    }

    /// Adds an entry. The index must have been loaded.
    pub fn push(&self, entry: [u8; N]) -> io::Result<()> {
        let mut state = locked(&self.state);
        assert!(state.written.is_some(), "an index grows only after it was loaded");
        state.pending.extend_from_slice(&entry);
        state.last = Some(entry);
        if state.pending.len() < PENDING_BYTES {
            return Ok(());
        }
        match self.write_out(&mut state) {
            // The entries can wait in memory until there is room again.
            Err(error) if disk::is_full(&error) => Ok(()),
            result => result,
        }
    }

    /// The last entry for which `at_most` holds; it must hold for a prefix of the entries.
    pub fn floor(
        &self,
        increases: fn(&[u8; N], &[u8; N]) -> bool,
        at_most: impl Fn(&[u8; N]) -> bool,
    ) -> io::Result<Option<(u32, [u8; N])>> {
        let written = {
            let mut state = locked(&self.state);
            self.load(&mut state, increases)?;
            let written = state.written.unwrap_or(0);
            let (entries, _) = state.pending.as_chunks::<N>();
            let below = entries.partition_point(&at_most);
            if below > 0 {
                return Ok(Some((written + below as u32 - 1, entries[below - 1])));
            }
            written
        };
        // Entries in the file never change while it is an index, so the lock is not needed to search them. A truncation
        // that runs meanwhile can at worst make a read fail or miss, as it does for the records themselves.
        self.floor_in_file(written, at_most)
    }

    /// The entry with this number, counted from 0.
    pub fn get(&self, increases: fn(&[u8; N], &[u8; N]) -> bool, number: u32) -> io::Result<Option<[u8; N]>> {
        {
            let mut state = locked(&self.state);
            self.load(&mut state, increases)?;
            if let Some(number) = number.checked_sub(state.written.unwrap_or(0)) {
                return Ok(state.pending.as_chunks::<N>().0.get(number as usize).copied());
            }
        }
        let mut entry = [0; N];
        self.file.get()?.read_exact_at(&mut entry, u64::from(number) * N as u64)?;
        Ok(Some(entry))
    }

    fn floor_in_file(
        &self,
        written: u32,
        at_most: impl Fn(&[u8; N]) -> bool,
    ) -> io::Result<Option<(u32, [u8; N])>> {
        /// Entries that one read fetches once the search is that narrow.
        const WINDOW: u32 = 256;
        if written == 0 {
            return Ok(None);
        }
        let file = self.file.get()?;
        let (mut low, mut high) = (0, written);
        // Holds for all entries before `low` and for none from `high` on.
        while high - low > WINDOW {
            let middle = low + (high - low) / 2;
            let mut entry = [0; N];
            file.read_exact_at(&mut entry, u64::from(middle) * N as u64)?;
            if at_most(&entry) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        // The entry before `low` is the answer when none in the window is.
        let first = low.saturating_sub(1);
        let bytes = file.read_vec((high - first) as usize * N, u64::from(first) * N as u64)?;
        let (entries, _) = bytes.as_chunks::<N>();
        let below = entries.partition_point(at_most);
        Ok(below.checked_sub(1).map(|index| (first + index as u32, entries[index])))
    }

    /// Keeps the first `keep` entries.
    pub fn truncate(&self, increases: fn(&[u8; N], &[u8; N]) -> bool, keep: u32) -> io::Result<()> {
        let mut state = locked(&self.state);
        self.load(&mut state, increases)?;
        if keep >= state.len() {
            return Ok(());
        }
        let written = state.written.unwrap_or(0);
        if keep >= written {
            state.pending.truncate((keep - written) as usize * N);
        } else {
            state.pending.clear();
            state.written = Some(keep);
            self.cut(&mut state)?;
        }
        state.last = self.read_last(&state)?;
        Ok(())
    }

    /// Reads the file whole and keeps the entries up to the first that does not increase.
    pub fn keep_increasing(&self, increases: fn(&[u8; N], &[u8; N]) -> bool) -> io::Result<()> {
        let mut state = locked(&self.state);
        self.load(&mut state, increases)?;
        let written = state.written.unwrap_or(0);
        if written < 2 {
            return Ok(());
        }
        let sound = increasing_prefix(&self.file.get()?.read_vec(written as usize * N, 0)?, increases);
        if sound < written {
            state.pending.clear();
            state.written = Some(sound);
            self.cut(&mut state)?;
            state.last = self.read_last(&state)?;
        }
        Ok(())
    }

    /// Writes what is pending to the file.
    pub fn flush(&self) -> io::Result<()> {
        self.write_out(&mut locked(&self.state))
    }

    /// Writes out and makes durable what was added so far.
    pub fn sync(&self) -> io::Result<()> {
        self.flush()?;
        self.file.sync_data()
    }

    fn write_out(&self, state: &mut State<N>) -> io::Result<()> {
        if state.pending.is_empty() {
            return Ok(());
        }
        if state.has_excess {
            self.cut(state)?;
        }
        let written = state.written.unwrap_or(0);
        let added = (state.pending.len() / N) as u32;
        self.file
            .get_to_write()?
            .write_all_at(&[IoSlice::new(&state.pending)], u64::from(written) * N as u64)?;
        state.written = Some(written + added);
        state.pending.clear();
        Ok(())
    }

    /// Ends the file behind the entries that count as written.
    fn cut(&self, state: &mut State<N>) -> io::Result<()> {
        self.file.get_to_write()?.set_len(u64::from(state.written.unwrap_or(0)) * N as u64)?;
        state.has_excess = false;
        Ok(())
    }

    fn load(&self, state: &mut State<N>, increases: fn(&[u8; N], &[u8; N]) -> bool) -> io::Result<()> {
        if state.written.is_some() {
            return Ok(());
        }
        let len = self.file.size()?.unwrap_or(0);
        let mut entries = u32::try_from(len / N as u64).unwrap_or(u32::MAX);
        if entries > 0 {
            let file = self.file.get()?;
            let mut first = [0; N];
            let mut last = [0; N];
            file.read_exact_at(&mut first, 0)?;
            file.read_exact_at(&mut last, u64::from(entries - 1) * N as u64)?;
            let sound = len.is_multiple_of(N as u64) && (entries == 1 || increases(&first, &last));
            if !sound {
                entries = increasing_prefix(&file.read_vec(entries as usize * N, 0)?, increases);
            }
        }
        state.has_excess = len > u64::from(entries) * N as u64;
        state.written = Some(entries);
        state.last = self.read_last(state)?;
        Ok(())
    }

    fn read_last(&self, state: &State<N>) -> io::Result<Option<[u8; N]>> {
        if let Some(entry) = state.pending.as_chunks::<N>().0.last() {
            return Ok(Some(*entry));
        }
        let Some(index) = state.written.unwrap_or(0).checked_sub(1) else { return Ok(None) };
        let mut entry = [0; N];
        self.file.get()?.read_exact_at(&mut entry, u64::from(index) * N as u64)?;
        Ok(Some(entry))
    }
}

impl<const N: usize> State<N> {
    fn len(&self) -> u32 {
        self.written.unwrap_or(0) + (self.pending.len() / N) as u32
    }
}

/// How many entries at the start of `bytes` increase.
fn increasing_prefix<const N: usize>(bytes: &[u8], increases: fn(&[u8; N], &[u8; N]) -> bool) -> u32 {
    let (entries, _) = bytes.as_chunks::<N>();
    if entries.is_empty() {
        return 0;
    }
    1 + entries.windows(2).take_while(|pair| increases(&pair[0], &pair[1])).count() as u32
}
