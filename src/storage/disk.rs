//! The seam between storage and the operating system: `trait Disk` and the real one. The only file of `storage` that may
//! name `std::fs` or `rustix`. It must not know what the files hold.
//!
//! Invariant: nothing is durable before `DiskFile::sync_data` of the file and `Disk::sync_dir` of the directory that names
//! it have returned `Ok`; an error of either says that it may never become so.

use std::fmt;
use std::fs;
use std::io::{self, IoSlice};
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustix::fs::{Advice, FlockOperation};

use crate::types::TimestampMs;

/// How `Disk::open` treats a file that exists or does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// An existing file, for reading.
    Read,
    /// An existing file, for reading and writing.
    Write,
    /// The file, made when missing, for reading and writing.
    Create,
    /// The file, made when missing and emptied when not, for reading and writing.
    Truncate,
}

/// What `Disk::stat` tells about a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStat {
    pub is_dir: bool,
    pub len: u64,
    pub modified: TimestampMs,
}

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirEntry {
    pub name: String,
    pub is_dir: bool,
}

/// The size of the file system that holds a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    pub total: u64,
    /// What this process may still use.
    pub free: u64,
}

/// An exclusive lock on a file; released when dropped.
pub trait DiskLock: Send + Sync + fmt::Debug {}

/// A tree of files. All paths are used as given; errors keep the operating system's kind.
pub trait Disk: Send + Sync + fmt::Debug + 'static {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>>;
    fn stat(&self, path: &Path) -> io::Result<FileStat>;
    /// The names in `dir`, in no order.
    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>>;
    /// Makes `dir` and what is missing above it.
    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;
    /// Gives `from` the name `to` in one step, replacing a file of that name. Durable after `sync_dir` of the parents.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    fn remove_dir_all(&self, dir: &Path) -> io::Result<()>;
    /// Makes the names in `dir` durable, as they are now.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    fn space(&self, path: &Path) -> io::Result<Space>;
    /// Locks the file `path` (made when missing) against every other holder, of this process too; `None` when it is held.
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn DiskLock>>>;
}

/// An open file with positional reads and writes; its users may share it.
pub trait DiskFile: Send + Sync + fmt::Debug {
    fn len(&self) -> io::Result<u64>;

    /// Reads what there is at `offset`, at most `buf.len()` bytes; 0 at the end of the file.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Appends to `into` up to `len` bytes from `offset`, fewer only at the end of the file.
    fn read_into(&self, into: &mut Vec<u8>, len: usize, offset: u64) -> io::Result<()>;

    /// Writes all of `parts`, one after the other, at `offset`. After an error any prefix may have been written.
    fn write_all_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()>;

    /// Cuts the file or extends it with zeros.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Sets when the file counts as changed last.
    fn set_modified(&self, at: TimestampMs) -> io::Result<()>;

    /// Makes the contents durable (fdatasync).
    fn sync_data(&self) -> io::Result<()>;

    /// Reads of this open file are to fetch what they ask for and no more: what follows is announced by
    /// [`will_read`](DiskFile::will_read), where it will be read. Advice, which changes no result.
    fn without_read_ahead(&self) {}

    /// `len` bytes from `offset` will be read soon. Does not wait for them, unless the disk has too much to do already.
    fn will_read(&self, _offset: u64, _len: usize) {}

    /// Whether the file has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Fills `buf` from `offset` or fails with `UnexpectedEof`.
    fn read_exact_at(&self, mut buf: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !buf.is_empty() {
            let read = self.read_at(buf, offset)?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            buf = &mut buf[read..];
            offset += read as u64;
        }
        Ok(())
    }

    /// Up to `len` bytes from `offset`, fewer only at the end of the file.
    fn read_vec(&self, len: usize, offset: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(len);
        self.read_into(&mut bytes, len, offset)?;
        Ok(bytes)
    }
}

/// Whether there is no room: no free space on the device, or none that this user may have. A state to live in, unlike other
/// errors.
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Whether a disk that was to read has failed at it. It has not when what is asked for is not there (any more), nor when there is no
/// room, nor when this process may have no more files or memory.
pub fn is_failed_read(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let is_limit = |code| [Errno::MFILE, Errno::NFILE, Errno::NOMEM].map(Errno::raw_os_error).contains(&code);
    let is_harmless = matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::OutOfMemory
    );
    !is_harmless && !is_full(error) && !error.raw_os_error().is_some_and(is_limit)
}

/// Reads a small file whole.
pub fn read_file(disk: &dyn Disk, path: &Path) -> io::Result<Vec<u8>> {
    let file = disk.open(path, OpenMode::Read)?;
    let len = file.len()?;
    let len = usize::try_from(len).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
    file.read_vec(len, 0)
}

/// Replaces the file `path` by one that holds `bytes`, so that after a crash it is the old one or the new one and after
/// success it is the new one: writes a sibling with the suffix `.tmp`, syncs it, renames it, syncs the directory.
pub fn write_file_atomically(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut tmp = path.as_os_str().to_owned();
    tmp.push(".tmp");
    let tmp = Path::new(&tmp);
    let file = disk.open(tmp, OpenMode::Truncate)?;
    file.write_all_at(&[IoSlice::new(bytes)], 0)?;
    file.sync_data()?;
    disk.rename(tmp, path)?;
    match path.parent() {
        Some(dir) => disk.sync_dir(dir),
        None => Ok(()),
    }
}

/// Removes a file if there is one.
pub fn remove_if_exists(disk: &dyn Disk, path: &Path) -> io::Result<bool> {
    match disk.remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// The operating system's file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

#[derive(Debug)]
struct RealFile(fs::File);

/// Holds the file open: closing it releases both locks.
#[derive(Debug)]
struct RealLock(#[expect(dead_code, reason = "held for its lock")] fs::File);

impl DiskLock for RealLock {}

impl Disk for RealDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let mut options = fs::OpenOptions::new();
        options.read(true);
        match mode {
            OpenMode::Read => {}
            OpenMode::Write => {
                options.write(true);
            }
            OpenMode::Create => {
                options.write(true).create(true).truncate(false);
            }
            OpenMode::Truncate => {
                options.write(true).create(true).truncate(true);
            }
        }
        Ok(Arc::new(RealFile(options.open(path)?)))
    }

    fn stat(&self, path: &Path) -> io::Result<FileStat> {
        let stat = rustix::fs::stat(path)?;
        let is_dir = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir();
        let nanos = i64::try_from(stat.st_mtime_nsec).unwrap_or(0);
        let modified = TimestampMs(stat.st_mtime.saturating_mul(1000).saturating_add(nanos / 1_000_000));
        Ok(FileStat { is_dir, len: u64::try_from(stat.st_size).unwrap_or(0), modified })
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            // Names that are not UTF-8 are not ours; everything that we or Kafka create is ASCII.
            if let Ok(name) = entry.file_name().into_string() {
                entries.push(DirEntry { name, is_dir: entry.file_type()?.is_dir() });
            }
        }
        Ok(entries)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        fs::create_dir_all(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir_all(&self, dir: &Path) -> io::Result<()> {
        fs::remove_dir_all(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        // A relative name without a directory part lies in the current directory.
        let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
        fs::File::open(dir)?.sync_all()
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        let stat = rustix::fs::statvfs(path)?;
        Ok(Space { total: stat.f_blocks * stat.f_frsize, free: stat.f_bavail * stat.f_frsize })
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn DiskLock>>> {
        let file = fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        // flock keeps out another holder in this process; the POSIX record lock is the one that a JVM takes, and keeps
        // out a Kafka broker.
        let held = |result: rustix::io::Result<()>| match result {
            Ok(()) => Ok(false),
            Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::ACCESS) => Ok(true),
            Err(error) => Err(io::Error::from(error)),
        };
        if held(rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive))?
            || held(rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive))?
        {
            return Ok(None);
        }
        Ok(Some(Box::new(RealLock(file))))
    }
}

/// `IOV_MAX` of Linux: more parts than this in one call are an error.
const MAX_PARTS: usize = 1024;

impl DiskFile for RealFile {
    fn len(&self) -> io::Result<u64> {
        let stat = rustix::fs::fstat(&self.0)?;
        Ok(u64::try_from(stat.st_size).unwrap_or(0))
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        loop {
            match rustix::io::pread(&self.0, &mut *buf, offset) {
                Err(rustix::io::Errno::INTR) => {}
                result => return Ok(result?),
            }
        }
    }

    fn read_into(&self, into: &mut Vec<u8>, len: usize, offset: u64) -> io::Result<()> {
        let start = into.len();
        let end = start.saturating_add(len);
        into.reserve_exact(len);
        while into.len() < end {
            let at = offset + (into.len() - start) as u64;
            match rustix::io::pread(&self.0, rustix::buffer::spare_capacity(into), at) {
                Err(rustix::io::Errno::INTR) => {}
                Ok(0) => break,
                Ok(_) => {}
                Err(error) => return Err(error.into()),
            }
        }
        // The allocator may have given more room than was asked for.
        into.truncate(end);
        Ok(())
    }

    fn write_all_at(&self, parts: &[IoSlice<'_>], mut offset: u64) -> io::Result<()> {
        for parts in parts.chunks(MAX_PARTS) {
            let total: usize = parts.iter().map(|part| part.len()).sum();
            let written = write_some(&self.0, parts, offset)?;
            if written < total {
                // A short write is rare (a signal, a nearly full disk), so the rest may be slow.
                self.write_rest(parts, written, offset)?;
            }
            offset += total as u64;
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn set_modified(&self, at: TimestampMs) -> io::Result<()> {
        let modified = SystemTime::UNIX_EPOCH + Duration::from_millis(u64::try_from(at.0).unwrap_or(0));
        self.0.set_modified(modified)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(rustix::fs::fdatasync(&self.0)?)
    }

    fn without_read_ahead(&self) {
        // Where it is not known, things stay as they are.
        let _ = rustix::fs::fadvise(&self.0, 0, None, Advice::Random);
    }

    fn will_read(&self, offset: u64, len: usize) {
        if let Some(len) = NonZeroU64::new(len as u64) {
            let _ = rustix::fs::fadvise(&self.0, offset, Some(len), Advice::WillNeed);
        }
    }
}

impl RealFile {
    /// Writes `parts` at `offset` except for their first `done` bytes.
    fn write_rest(&self, parts: &[IoSlice<'_>], mut done: usize, mut offset: u64) -> io::Result<()> {
        for part in parts {
            let mut skip = done.min(part.len());
            done -= skip;
            while skip < part.len() {
                let written = write_some(&self.0, &[IoSlice::new(&part[skip..])], offset + skip as u64)?;
                skip += written;
            }
            offset += part.len() as u64;
        }
        Ok(())
    }
}

/// One write that is not interrupted; never 0 for parts that hold bytes.
fn write_some(file: &fs::File, parts: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
    loop {
        match rustix::io::pwritev(file, parts, offset) {
            Err(rustix::io::Errno::INTR) => {}
            Ok(0) if parts.iter().any(|part| !part.is_empty()) => {
                return Err(io::ErrorKind::WriteZero.into());
            }
            result => return Ok(result?),
        }
    }
}
