//! A segment's file as somebody sees it who trusts nothing: whether a batch is sound where one should be, and where the next sound one
//! is behind what is none. Must not know why it is looked at, nor what becomes of damage.
//!
//! Invariant: at most two pieces are in memory, however long a batch says that it is; no damage is an error here, only a disk that
//! does not answer.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::damage::check_offsets;
use super::read::HeaderWalk;
use super::segment::Segment;
use crate::storage::disk::DiskFile;
use crate::types::Offset;
use crate::wire::batch::{BatchHeader, CRC_FROM, HEADER_LEN, crc_append};

/// Bytes that are in memory at a time.
pub(super) const PIECE: usize = 256 << 10;
/// Bytes of a batch that a shard may look at.
const SMALL: u64 = 4 << 20;
/// So far a batch is looked for byte by byte where no index tells where one is.
const SEARCH_MAX: u64 = 4 << 20;
/// So many entries of an index that lead to no batch are passed over.
const ENTRIES_MAX: usize = 8;

/// A file that is looked at by pieces.
pub(super) struct Sight {
    file: Arc<dyn DiskFile>,
    pub(super) piece: Vec<u8>,
    /// Where the piece begins.
    start: u64,
}

impl Sight {
    pub fn of(segment: &Segment) -> io::Result<Sight> {
        Ok(Sight { file: segment.log_file().get()?, piece: Vec::new(), start: 0 })
    }

    /// At most so many bytes from `position` on, fewer at the end of the file or of a piece.
    fn some(&mut self, position: u64, at_most: usize) -> io::Result<&[u8]> {
        let known = position.checked_sub(self.start).and_then(|at| usize::try_from(at).ok());
        let at = match known.filter(|at| *at < self.piece.len()) {
            Some(at) => at,
            None => {
                self.piece.clear();
                self.start = position;
                self.file.read_into(&mut self.piece, PIECE, position)?;
                0
            }
        };
        let end = self.piece.len().min(at.saturating_add(at_most));
        Ok(&self.piece[at..end])
    }

    /// So many bytes, fewer only at the end of the file.
    pub fn bytes(&mut self, position: u64, len: usize) -> io::Result<&[u8]> {
        if self.some(position, len)?.len() < len {
            // It lies across two pieces.
            self.piece.clear();
        }
        self.some(position, len)
    }

    /// The header of the batch there, if it is sound and ends at or before `end`.
    pub fn sound_at(&mut self, position: u64, end: u64) -> io::Result<Option<BatchHeader>> {
        let Ok(header) = BatchHeader::parse(self.bytes(position, HEADER_LEN)?) else { return Ok(None) };
        let size = header.size_in_bytes();
        if position + size as u64 > end || header.check_ranges().is_err() {
            return Ok(None);
        }
        let (mut crc, mut done) = (0, CRC_FROM);
        while done < size {
            let bytes = self.some(position + done as u64, size - done)?;
            if bytes.is_empty() {
                return Ok(None);
            }
            crc = crc_append(crc, bytes);
            done += bytes.len();
        }
        Ok((crc == header.crc).then_some(header))
    }

    /// Whether a batch, which does not begin at once where the one before it ended, ends behind where the next one begins. Compaction
    /// leaves gaps; so does a base offset that is not what it was.
    pub fn is_contradicted(
        &mut self,
        header: &BatchHeader,
        position: u64,
        end: u64,
        after: Offset,
    ) -> io::Result<bool> {
        if header.base_offset == after {
            return Ok(false);
        }
        let next = self.sound_at(position + header.size_in_bytes() as u64, end)?;
        Ok(next.is_some_and(|next| contradicts(header, &next, after)))
    }

    /// The first sound batch that begins within `positions`, whose offsets are `within`.
    fn find(
        &mut self,
        positions: Range<u64>,
        end: u64,
        within: &Range<Offset>,
    ) -> io::Result<Option<(u64, BatchHeader)>> {
        for position in positions {
            // Next to nothing that is no header looks like one so far.
            let is_likely = BatchHeader::parse(self.bytes(position, HEADER_LEN)?)
                .is_ok_and(|header| check_offsets(&header, within.clone()).is_ok());
            if is_likely && let Some(header) = self.sound_at(position, end)? {
                return Ok(Some((position, header)));
            }
        }
        Ok(None)
    }
}

/// Whether two batches in a row, behind others that end at `after`, say that they have the same offsets.
pub(super) fn contradicts(header: &BatchHeader, next: &BatchHeader, after: Offset) -> bool {
    header.base_offset != after && (after..header.next_offset()).contains(&next.base_offset)
}

/// The header of the batch there, if it is sound, and not so large that it takes long to tell.
pub(super) fn small_sound_at(segment: &Segment, position: u64) -> io::Result<Option<BatchHeader>> {
    let end = segment.size().min(position + SMALL);
    Sight::of(segment)?.sound_at(position, end)
}

/// Where the next sound batch is behind a place where none is: the one that the index tells of, or one before that.
fn behind(
    segment: &Segment,
    sight: &mut Sight,
    position: u64,
    within: &Range<Offset>,
) -> io::Result<Option<(u64, BatchHeader)>> {
    let size = segment.size();
    let (mut indexed, mut at) = (None, position);
    for _ in 0..ENTRIES_MAX {
        // An index that cannot be read leads nowhere.
        let Ok(Some(entry)) = segment.offset_index.behind(at) else { break };
        at = u64::from(entry.position);
        let header = sight.sound_at(at, size)?;
        let is_it = |header: &BatchHeader| {
            header.last_offset() == entry.offset && check_offsets(header, within.clone()).is_ok()
        };
        if let Some(header) = header.filter(is_it) {
            indexed = Some((at, header));
            break;
        }
    }
    let upto = indexed.map_or(size, |(at, _)| at).min(position.saturating_add(SEARCH_MAX));
    Ok(sight.find(position + 1..upto, size, within)?.or(indexed))
}

/// Walks over the headers of a segment, and past what is damaged. What is not in the headers is not looked at.
pub(super) struct Headers<'a> {
    segment: &'a Segment,
    walk: HeaderWalk,
    /// The offsets of what follows.
    within: Range<Offset>,
}

impl<'a> Headers<'a> {
    /// From a batch on that lies at or before the one that holds `offset`, in a segment whose offsets are `within`.
    pub fn before(segment: &'a Segment, offset: Offset, within: Range<Offset>) -> io::Result<Headers<'a>> {
        Ok(Headers { segment, walk: HeaderWalk::before(segment, offset)?, within })
    }

    /// The next batch's position and header.
    pub fn advance(&mut self) -> io::Result<Option<(u64, BatchHeader)>> {
        let position = self.walk.position();
        let found = match self.walk.advance() {
            Err(error) if error.kind() != io::ErrorKind::InvalidData => return Err(error),
            Ok(None) => return Ok(None),
            Ok(found) => found.filter(|(position, header)| {
                let end = position + header.size_in_bytes() as u64;
                end <= self.segment.size() && check_offsets(header, self.within.clone()).is_ok()
            }),
            Err(_) => None,
        };
        let found = match found {
            Some(found) => Some(found),
            None => behind(self.segment, &mut Sight::of(self.segment)?, position, &self.within)?,
        };
        let end = self.segment.size();
        let next = found.map_or(end, |(position, header)| position + header.size_in_bytes() as u64);
        if self.walk.position() != next {
            self.walk = HeaderWalk::new(self.segment, next)?;
        }
        if let Some((_, header)) = &found {
            self.within.start = header.next_offset();
        }
        Ok(found)
    }
}

/// Where a segment is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CutPoint {
    pub position: u64,
    /// What is before it ends with bytes that are no sound batch, and may stand for records below the cut.
    pub is_behind_damage: bool,
}

impl CutPoint {
    /// Where the batch that holds `offset`, or follows it, starts in a segment whose offsets end at `end`. What is damaged before it
    /// is not cut off as long as it may be of records that stay, for then it can be put right; and nothing is cut off that is
    /// sound and stays.
    pub fn of(segment: &Segment, offset: Offset, end: Offset) -> io::Result<CutPoint> {
        let sound = |position| CutPoint { position, is_behind_damage: false };
        if offset <= segment.base() {
            return Ok(sound(0));
        }
        let size = segment.size();
        let mut sight = Sight::of(segment)?;
        let (mut at, mut within) = start_before(segment, &mut sight, offset, end)?;
        while at < size {
            let found = sound_in(&mut sight, at, size, &within)?;
            let found = match found {
                Some(header) => Some((at, header)),
                None => behind(segment, &mut sight, at, &within)?,
            };
            let (position, stays) = match found {
                Some((position, header)) if header.last_offset() < offset => (position, Some(header)),
                Some((position, _)) => (position, None),
                None => (size, None),
            };
            if let Some(header) = stays {
                at = position + header.size_in_bytes() as u64;
                within.start = header.next_offset();
                continue;
            }
            // All that stays is before the damage.
            let is_damage_gone = position == at || within.start >= offset;
            return Ok(match is_damage_gone {
                true => sound(at),
                false => CutPoint { position, is_behind_damage: true },
            });
        }
        Ok(sound(size))
    }
}

/// The batch there, if it is sound, lies where it can, and the next one does not say that it ends elsewhere.
fn sound_in(
    sight: &mut Sight,
    position: u64,
    size: u64,
    within: &Range<Offset>,
) -> io::Result<Option<BatchHeader>> {
    let header = sight.sound_at(position, size)?;
    let Some(header) = header.filter(|header| check_offsets(header, within.clone()).is_ok()) else {
        return Ok(None);
    };
    Ok((!sight.is_contradicted(&header, position, size, within.start)?).then_some(header))
}

/// A sound batch that the index has before an offset, and the offsets that can be from there on; the segment's start if there is none.
fn start_before(
    segment: &Segment,
    sight: &mut Sight,
    offset: Offset,
    end: Offset,
) -> io::Result<(u64, Range<Offset>)> {
    let mut below = offset;
    for _ in 0..ENTRIES_MAX {
        let Ok(Some(entry)) = segment.offset_index.floor(below) else { break };
        let position = u64::from(entry.position);
        if let Some(header) = sight.sound_at(position, segment.size())?
            && header.last_offset() == entry.offset
            && check_offsets(&header, segment.base()..end).is_ok()
        {
            return Ok((position, header.base_offset..end));
        }
        below = entry.offset.plus(-1);
    }
    Ok((0, segment.base()..end))
}

#[cfg(test)]
mod tests;
