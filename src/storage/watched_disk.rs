//! A disk of which somebody hears when it fails at reading: the one place through which all reads of a log directory go,
//! whoever reads and whatever becomes of the error there.
//!
//! Must not know what the files hold, nor what follows. Invariant: every call does what the disk below does, with the same
//! result.

use std::fmt;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use super::disk::{self, DirEntry, Disk, DiskFile, DiskLock, FileStat, OpenMode, Space};
use crate::types::TimestampMs;

/// A disk that tells of reads that fail. Writes and syncs are for those to tell who ask for them: they know what they lose.
#[derive(Debug)]
pub struct WatchedDisk {
    disk: Arc<dyn Disk>,
    watch: Arc<Watch>,
}

/// Who hears of it, once somebody does.
#[derive(Default)]
struct Watch(OnceLock<Hearer>);

type Hearer = Box<dyn Fn(&Path, &io::Error) + Send + Sync>;

#[derive(Debug)]
struct WatchedFile {
    file: Arc<dyn DiskFile>,
    /// As it was when the file was opened.
    path: PathBuf,
    watch: Arc<Watch>,
}

impl WatchedDisk {
    pub fn new(disk: Arc<dyn Disk>) -> WatchedDisk {
        WatchedDisk { disk, watch: Arc::default() }
    }

    /// From now on `hear` is told what could not be read, and why. Only the first one who asks for it is.
    pub fn on_failed_read(&self, hear: impl Fn(&Path, &io::Error) + Send + Sync + 'static) {
        let _ = self.watch.0.set(Box::new(hear));
    }
}

impl Watch {
    fn look<T>(&self, path: &Path, result: io::Result<T>) -> io::Result<T> {
        if let Err(error) = &result
            && disk::is_failed_read(error)
            && let Some(hear) = self.0.get()
        {
            hear(path, error);
        }
        result
    }
}

impl Disk for WatchedDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let opened = self.disk.open(path, mode);
        let file = match mode {
            OpenMode::Read | OpenMode::Write => self.watch.look(path, opened)?,
            // The beginning of a write.
            OpenMode::Create | OpenMode::Truncate => opened?,
        };
        Ok(Arc::new(WatchedFile { file, path: path.to_owned(), watch: self.watch.clone() }))
    }

    fn stat(&self, path: &Path) -> io::Result<FileStat> {
        self.watch.look(path, self.disk.stat(path))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.watch.look(dir, self.disk.list(dir))
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.disk.create_dir_all(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.disk.remove_file(path)
    }

    fn remove_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.disk.remove_dir_all(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.sync_dir(dir)
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        self.disk.space(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn DiskLock>>> {
        self.disk.lock(path)
    }
}

impl DiskFile for WatchedFile {
    fn len(&self) -> io::Result<u64> {
        self.watch.look(&self.path, self.file.len())
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.watch.look(&self.path, self.file.read_at(buf, offset))
    }

    fn read_into(&self, into: &mut Vec<u8>, len: usize, offset: u64) -> io::Result<()> {
        self.watch.look(&self.path, self.file.read_into(into, len, offset))
    }

    fn write_all_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        self.file.write_all_at(parts, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn set_modified(&self, at: TimestampMs) -> io::Result<()> {
        self.file.set_modified(at)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn without_read_ahead(&self) {
        self.file.without_read_ahead();
    }

    fn will_read(&self, offset: u64, len: usize) {
        self.file.will_read(offset, len);
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watch").field(&self.0.get().is_some()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::storage::sim_disk::{FaultOn, SimDisk};

    /// Something that a disk is asked for.
    type Call = fn(&WatchedDisk) -> io::Result<()>;

    /// What was told while `act` ran on a disk that fails so at so much.
    fn told(on: FaultOn, error: io::ErrorKind, act: impl Fn(&WatchedDisk) -> io::Result<()>) -> Vec<String> {
        let below = SimDisk::new();
        below.create_dir_all(Path::new("/d")).unwrap();
        let file = below.open(Path::new("/d/f"), OpenMode::Create).unwrap();
        file.write_all_at(&[IoSlice::new(b"some bytes")], 0).unwrap();
        let watched = WatchedDisk::new(Arc::new(below.clone()));
        let heard = Arc::new(Mutex::new(Vec::new()));
        let hearing = heard.clone();
        watched.on_failed_read(move |path, error| {
            hearing.lock().unwrap().push(format!("{}: {error}", path.display()));
        });
        assert_eq!(
            act(&watched).map_err(|error| error.kind()),
            Ok(()),
            "without a fault it does what it should"
        );
        below.fail(on, "", 0, error, None);
        assert_eq!(act(&watched).map_err(|error| error.kind()), Err(error), "the error is handed on");
        let heard = heard.lock().unwrap();
        heard.clone()
    }

    fn opened(disk: &WatchedDisk, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        disk.open(Path::new("/d/f"), mode)
    }

    #[test]
    fn each_kind_of_read_that_fails_is_told() {
        let reads: [(FaultOn, Call); 6] = [
            (FaultOn::Read, |disk| opened(disk, OpenMode::Read)?.read_at(&mut [0; 4], 1).map(drop)),
            (FaultOn::Read, |disk| opened(disk, OpenMode::Write)?.read_exact_at(&mut [0; 4], 1)),
            (FaultOn::Read, |disk| opened(disk, OpenMode::Create)?.read_vec(4, 1).map(drop)),
            (FaultOn::Read, |disk| opened(disk, OpenMode::Read)?.read_into(&mut Vec::new(), 4, 1)),
            (FaultOn::Open, |disk| opened(disk, OpenMode::Read).map(drop)),
            (FaultOn::Open, |disk| opened(disk, OpenMode::Write).map(drop)),
        ];
        for (at, (on, read)) in reads.into_iter().enumerate() {
            assert_eq!(told(on, io::ErrorKind::Other, read), ["/d/f: injected"], "read {at}");
            for harmless in [io::ErrorKind::NotFound, io::ErrorKind::StorageFull, io::ErrorKind::OutOfMemory]
            {
                assert_eq!(told(on, harmless, read), [""; 0], "read {at}, {harmless:?}");
            }
        }
    }

    #[test]
    fn what_is_not_there_and_the_limits_of_this_process_are_no_failures_of_the_disk() {
        // EIO, EROFS and EUCLEAN; then ENOENT, ENOTDIR, ENOMEM, ENFILE, EMFILE, ENOSPC and EDQUOT.
        for code in [5, 30, 117] {
            assert!(disk::is_failed_read(&io::Error::from_raw_os_error(code)), "{code}");
        }
        for code in [2, 20, 12, 23, 24, 28, 122] {
            assert!(!disk::is_failed_read(&io::Error::from_raw_os_error(code)), "{code}");
        }
    }

    #[test]
    fn what_writes_is_told_by_who_writes() {
        let writes: [(FaultOn, Call); 5] = [
            (FaultOn::Open, |disk| opened(disk, OpenMode::Create).map(drop)),
            (FaultOn::Write, |disk| opened(disk, OpenMode::Write)?.write_all_at(&[IoSlice::new(b"x")], 0)),
            (FaultOn::SetLen, |disk| opened(disk, OpenMode::Write)?.set_len(1)),
            (FaultOn::Sync, |disk| opened(disk, OpenMode::Write)?.sync_data()),
            (FaultOn::Sync, |disk| disk.sync_dir(Path::new("/d"))),
        ];
        for (at, (on, write)) in writes.into_iter().enumerate() {
            assert_eq!(told(on, io::ErrorKind::Other, write), [""; 0], "write {at}");
        }
    }
}
