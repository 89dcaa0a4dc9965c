//! The offset checkpoints of a log directory as they are on disk, and the way to change them while logs are open.
//!
//! A checkpoint may say less of a partition than is true, never more: what lies below a recovery point is taken for whole after
//! a crash, and what lies below a log start for deleted. So before a log is cut, or a new one gets the name of an older one, what
//! was said of it is taken back. Must not know logs.
//!
//! Invariants: what a file says is what was last gathered, or less; while somebody holds a [`Lowered`] no file says more of
//! its partition. Where there is no room to take something back the file goes: it only saves work.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use super::offsets::{OffsetCheckpoint, read_offsets, write_offsets};
use crate::storage::disk::{self, Disk, remove_if_exists};
use crate::storage::locked;
use crate::types::{Offset, TopicPartition};

/// Partitions, and an offset of each.
pub type Offsets = Vec<(TopicPartition, Offset)>;

#[derive(Debug)]
pub struct OffsetFiles {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    /// What is wrong with files that say what cannot be.
    malformed: Vec<io::Error>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    files: [OffsetFile; OffsetCheckpoint::ALL.len()],
    /// Above these nothing is said. One for each [`Lowered`].
    ceilings: Offsets,
}

/// What one of the files may say, in the order of the partitions.
#[derive(Debug, Default)]
struct OffsetFile {
    says: Offsets,
    /// It was written since it was read, and without an error.
    is_written: bool,
}

/// Nothing is said of a partition above an offset until this is dropped. Other partitions are none the worse for it.
#[derive(Debug)]
#[must_use = "what is said may rise again as soon as it is dropped"]
pub struct Lowered<'a> {
    files: &'a OffsetFiles,
    ceiling: (TopicPartition, Offset),
}

impl Drop for Lowered<'_> {
    fn drop(&mut self) {
        let mut state = locked(&self.files.state);
        if let Some(at) = state.ceilings.iter().position(|ceiling| *ceiling == self.ceiling) {
            state.ceilings.swap_remove(at);
        }
    }
}

impl OffsetFiles {
    /// Reads the files of a log directory. One that is damaged says nothing.
    pub fn read(disk: Arc<dyn Disk>, dir: &Path) -> io::Result<OffsetFiles> {
        let (mut state, mut malformed) = (State::default(), Vec::new());
        for which in OffsetCheckpoint::ALL {
            let mut says: Offsets = match read_offsets(&*disk, dir, which) {
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    malformed.push(error);
                    Offsets::new()
                }
                said => said?.into_iter().collect(),
            };
            says.sort_unstable();
            state.files[which as usize] = OffsetFile { says, is_written: false };
        }
        Ok(OffsetFiles { disk, dir: dir.to_owned(), malformed, state: Mutex::new(state) })
    }

    /// Why files were taken for empty.
    pub fn malformed(&self) -> &[io::Error] {
        &self.malformed
    }

    /// What a file says of a partition.
    pub fn said(&self, which: OffsetCheckpoint, partition: &TopicPartition) -> Option<Offset> {
        let file = &locked(&self.state).files[which as usize];
        file.position(partition).map(|at| file.says[at].1)
    }

    /// Has a file say what `gather` makes of what it says, unless it does. `gather` is called when nobody else changes the
    /// file, so what it finds is not older than what is there; what is above a ceiling comes down to it. True when the file
    /// was written.
    pub fn write(
        &self,
        which: OffsetCheckpoint,
        gather: impl FnOnce(&[(TopicPartition, Offset)]) -> Offsets,
    ) -> io::Result<bool> {
        let mut state = locked(&self.state);
        let State { files, ceilings } = &mut *state;
        let file = &mut files[which as usize];
        let mut says = gather(&file.says);
        for (of, offset) in says.iter_mut().filter(|_| !ceilings.is_empty()) {
            for (_, ceiling) in ceilings.iter().filter(|(partition, _)| partition == of) {
                *offset = (*offset).min(*ceiling);
            }
        }
        says.sort_unstable();
        if file.is_written && file.says == says {
            return Ok(false);
        }
        self.replace(which, file, says).map(|()| true)
    }

    /// Takes back what is said of a partition above `to`. Durable when it returns.
    pub fn lower(&self, partition: &TopicPartition, to: Offset) -> io::Result<Lowered<'_>> {
        let mut state = locked(&self.state);
        for which in OffsetCheckpoint::ALL {
            let file = &mut state.files[which as usize];
            let Some(at) = file.position(partition).filter(|at| file.says[*at].1 > to) else { continue };
            let mut says = file.says.clone();
            says[at].1 = to;
            match self.replace(which, file, says) {
                // The file has gone, and says nothing.
                Err(error) if disk::is_full(&error) => {}
                result => result?,
            }
        }
        let ceiling = (partition.clone(), to);
        state.ceilings.push(ceiling.clone());
        Ok(Lowered { files: self, ceiling })
    }

    /// Whether something is said of a partition above `end`.
    pub fn exceed(&self, partition: &TopicPartition, end: Offset) -> bool {
        let state = locked(&self.state);
        state.files.iter().any(|file| file.position(partition).is_some_and(|at| file.says[at].1 > end))
    }

    fn replace(&self, which: OffsetCheckpoint, file: &mut OffsetFile, says: Offsets) -> io::Result<()> {
        let written =
            write_offsets(&*self.disk, &self.dir, which, says.iter().map(|(of, offset)| (of, *offset)));
        let Err(error) = written else {
            *file = OffsetFile { says, is_written: true };
            return Ok(());
        };
        if disk::is_full(&error) && file.says_more_than(&says) {
            remove_if_exists(&*self.disk, &self.dir.join(which.file_name()))?;
            self.disk.sync_dir(&self.dir)?;
            *file = OffsetFile::default();
        } else {
            // Nobody knows which of the two is there.
            file.may_say(says);
        }
        Err(error)
    }
}

impl OffsetFile {
    fn position(&self, partition: &TopicPartition) -> Option<usize> {
        self.says.binary_search_by(|(of, _)| of.cmp(partition)).ok()
    }

    /// Whether it says something that `says` does not bear out.
    fn says_more_than(&self, says: &Offsets) -> bool {
        let other = says.iter().map(|(of, offset)| (of, *offset)).collect::<HashMap<_, _>>();
        self.says.iter().any(|(of, offset)| other.get(of).is_none_or(|other| offset > other))
    }

    /// Of each partition the more that one of them says.
    fn may_say(&mut self, says: Offsets) {
        let mut most: HashMap<TopicPartition, Offset> = std::mem::take(&mut self.says).into_iter().collect();
        for (of, offset) in says {
            let known = most.entry(of).or_insert(offset);
            *known = offset.max(*known);
        }
        let mut says: Offsets = most.into_iter().collect();
        says.sort_unstable();
        *self = OffsetFile { says, is_written: false };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::sim_disk::{FaultOn, SimDisk};

    const DIR: &str = "/data";

    fn partition(index: i32) -> TopicPartition {
        TopicPartition::new("t", index)
    }

    fn files(disk: &SimDisk) -> OffsetFiles {
        disk.create_dir_all(Path::new(DIR)).unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        OffsetFiles::read(Arc::new(disk.clone()), Path::new(DIR)).unwrap()
    }

    fn say(files: &OffsetFiles, which: OffsetCheckpoint, offsets: &[i64]) -> io::Result<bool> {
        let says = offsets.iter().enumerate().map(|(index, at)| (partition(index as i32), Offset(*at)));
        files.write(which, |_| says.collect())
    }

    /// What is there after a crash, as a later process reads it.
    fn said(disk: &SimDisk, which: OffsetCheckpoint) -> Vec<i64> {
        disk.crash(0);
        let files = files(disk);
        (0..9).filter_map(|index| Some(files.said(which, &partition(index))?.0)).collect()
    }

    #[test]
    fn what_is_taken_back_is_durable_and_the_rest_stays() {
        let disk = SimDisk::new();
        let files = files(&disk);
        for which in OffsetCheckpoint::ALL {
            assert!(say(&files, which, &[5, 6, 7]).unwrap());
            assert!(!say(&files, which, &[5, 6, 7]).unwrap());
        }
        assert!(files.exceed(&partition(1), Offset(5)) && !files.exceed(&partition(1), Offset(6)));
        drop(files.lower(&partition(1), Offset(6)).unwrap());
        drop(files.lower(&partition(9), Offset(0)).unwrap());
        drop(files.lower(&partition(1), Offset(2)).unwrap());
        for which in OffsetCheckpoint::ALL {
            assert_eq!(said(&disk, which), [5, 2, 7]);
        }
    }

    /// A cut takes its time, and the logs beside it go on.
    #[test]
    fn while_one_partition_is_held_down_the_others_rise_and_are_lowered() {
        let disk = SimDisk::new();
        let files = files(&disk);
        let which = OffsetCheckpoint::RecoveryPoint;
        say(&files, which, &[5, 6, 7]).unwrap();
        let held = files.lower(&partition(1), Offset(3)).unwrap();
        let twice = files.lower(&partition(1), Offset(2)).unwrap();
        drop(files.lower(&partition(2), Offset(1)).unwrap());
        assert!(say(&files, which, &[8, 9, 9]).unwrap());
        assert_eq!(said(&disk, which), [8, 2, 9]);
        drop(twice);
        assert!(say(&files, which, &[8, 9, 9]).unwrap());
        assert_eq!(said(&disk, which), [8, 3, 9]);
        drop(held);
        assert!(say(&files, which, &[8, 9, 9]).unwrap());
        assert_eq!(said(&disk, which), [8, 9, 9]);
    }

    #[test]
    fn a_file_that_says_too_much_goes_when_there_is_no_room() {
        let fill = |disk: &SimDisk| {
            disk.fail(FaultOn::Write, "recovery-point", 0, io::ErrorKind::StorageFull, None);
        };
        let which = OffsetCheckpoint::RecoveryPoint;
        // What could not be added costs nothing, and comes with the next attempt.
        let disk = SimDisk::new();
        let files = files(&disk);
        say(&files, which, &[5, 6]).unwrap();
        fill(&disk);
        assert!(disk::is_full(&say(&files, which, &[5, 7, 8]).unwrap_err()));
        disk.heal();
        assert!(say(&files, which, &[5, 6]).unwrap());
        assert_eq!(said(&disk, which), [5, 6]);

        for lower in [true, false] {
            let disk = SimDisk::new();
            let files = self::files(&disk);
            say(&files, which, &[5, 6]).unwrap();
            fill(&disk);
            if lower {
                drop(files.lower(&partition(0), Offset(4)).unwrap());
            } else {
                assert!(say(&files, which, &[5]).is_err());
            }
            assert!(!files.exceed(&partition(1), Offset(0)));
            assert_eq!(said(&disk, which), [0; 0]);
        }
    }

    /// As with Kafka: what they say only saves work.
    #[test]
    fn a_damaged_file_says_nothing() {
        let disk = SimDisk::new();
        let before = files(&disk);
        for which in OffsetCheckpoint::ALL {
            assert!(say(&before, which, &[7]).unwrap());
        }
        let damaged = OffsetCheckpoint::RecoveryPoint;
        assert!(disk.rot(&Path::new(DIR).join(damaged.file_name()), 0, 7));
        let after = files(&disk);
        assert_eq!(after.malformed().len(), 1);
        for which in OffsetCheckpoint::ALL {
            assert_eq!(after.said(which, &partition(0)), (which != damaged).then_some(Offset(7)));
        }
        // The next time it is written.
        assert!(say(&after, damaged, &[7]).unwrap());
        assert!(files(&disk).malformed().is_empty());
    }
}
