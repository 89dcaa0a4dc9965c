//! What every disk must do, run against both of them; and what the simulated one forgets.

use std::io::{self, IoSlice};
use std::path::Path;

use super::disk::{Disk, OpenMode, RealDisk, read_file, remove_if_exists, write_file_atomically};
use super::sim_disk::{FaultOn, SimDisk};

fn on_both(check: fn(&dyn Disk, &Path)) {
    let dir = tempfile::tempdir().unwrap();
    check(&RealDisk, dir.path());
    let sim = SimDisk::new();
    sim.create_dir_all(Path::new("/sim/root")).unwrap();
    check(&sim, Path::new("/sim/root"));
}

fn kind<T>(result: io::Result<T>) -> io::ErrorKind {
    result.err().expect("an error").kind()
}

#[test]
fn files_are_opened_as_asked() {
    on_both(|disk, root| {
        let path = root.join("file");
        for mode in [OpenMode::Read, OpenMode::Write] {
            assert_eq!(kind(disk.open(&path, mode)), io::ErrorKind::NotFound);
        }
        let file = disk.open(&path, OpenMode::Create).unwrap();
        assert!(file.is_empty().unwrap());
        file.write_all_at(&[IoSlice::new(b"hello")], 0).unwrap();
        for mode in [OpenMode::Read, OpenMode::Write, OpenMode::Create] {
            assert_eq!(disk.open(&path, mode).unwrap().len().unwrap(), 5);
        }
        let read_only = disk.open(&path, OpenMode::Read).unwrap();
        assert!(read_only.write_all_at(&[IoSlice::new(b"x")], 0).is_err());
        assert_eq!(disk.open(&path, OpenMode::Truncate).unwrap().len().unwrap(), 0);
        assert_eq!(kind(disk.open(&root.join("no/file"), OpenMode::Create)), io::ErrorKind::NotFound);
    });
}

#[test]
fn reads_and_writes_are_positional_and_stop_at_the_end() {
    on_both(|disk, root| {
        let file = disk.open(&root.join("file"), OpenMode::Create).unwrap();
        file.write_all_at(&[IoSlice::new(b"one"), IoSlice::new(b""), IoSlice::new(b"two")], 2).unwrap();
        assert_eq!(file.read_vec(100, 0).unwrap(), b"\0\0onetwo");
        assert_eq!(file.read_vec(3, 3).unwrap(), b"net");
        assert_eq!(file.read_vec(3, 100).unwrap(), b"");
        let mut into = b"<".to_vec();
        file.read_into(&mut into, 2, 6).unwrap();
        assert_eq!(into, b"<wo");
        let mut buf = [0; 4];
        assert_eq!(file.read_at(&mut buf, 6).unwrap(), 2);
        file.read_exact_at(&mut buf, 2).unwrap();
        assert_eq!(&buf, b"onet");
        assert_eq!(kind(file.read_exact_at(&mut buf, 6)), io::ErrorKind::UnexpectedEof);
        let many: Vec<IoSlice<'_>> = (0..3000).map(|_| IoSlice::new(b"abc")).collect();
        file.write_all_at(&many, 0).unwrap();
        assert_eq!(file.len().unwrap(), 9000);
        assert_eq!(file.read_vec(9000, 0).unwrap(), b"abc".repeat(3000));
        file.set_len(4).unwrap();
        file.set_len(6).unwrap();
        assert_eq!(file.read_vec(100, 0).unwrap(), b"abca\0\0");
        file.sync_data().unwrap();
    });
}

#[test]
fn directories_name_files() {
    on_both(|disk, root| {
        let dir = root.join("a/b");
        disk.create_dir_all(&dir).unwrap();
        disk.create_dir_all(&dir).unwrap();
        disk.open(&dir.join("one"), OpenMode::Create).unwrap();
        disk.open(&dir.join("two"), OpenMode::Create)
            .unwrap()
            .write_all_at(&[IoSlice::new(b"2")], 0)
            .unwrap();
        disk.rename(&dir.join("two"), &dir.join("one")).unwrap();
        disk.create_dir_all(&dir.join("sub")).unwrap();
        let mut entries = disk.list(&dir).unwrap();
        entries.sort();
        let names: Vec<_> = entries.iter().map(|entry| (entry.name.as_str(), entry.is_dir)).collect();
        assert_eq!(names, [("one", false), ("sub", true)]);
        assert_eq!(disk.stat(&dir.join("one")).unwrap().len, 1);
        assert!(disk.stat(&dir).unwrap().is_dir);
        disk.sync_dir(&dir).unwrap();
        disk.rename(&dir, &root.join("a/c")).unwrap();
        assert_eq!(kind(disk.list(&dir)), io::ErrorKind::NotFound);
        assert!(remove_if_exists(disk, &root.join("a/c/one")).unwrap());
        assert!(!remove_if_exists(disk, &root.join("a/c/one")).unwrap());
        assert_eq!(kind(disk.rename(&root.join("nothing"), &root.join("x"))), io::ErrorKind::NotFound);
        // A directory takes no name of one that holds something.
        disk.create_dir_all(&root.join("empty")).unwrap();
        disk.create_dir_all(&root.join("full/of")).unwrap();
        assert_eq!(
            kind(disk.rename(&root.join("empty"), &root.join("full"))),
            io::ErrorKind::DirectoryNotEmpty
        );
        disk.rename(&root.join("full"), &root.join("empty")).unwrap();
        assert!(disk.stat(&root.join("empty/of")).unwrap().is_dir);
        disk.remove_dir_all(&root.join("empty")).unwrap();
        disk.remove_dir_all(&root.join("a")).unwrap();
        assert_eq!(disk.list(root).unwrap(), []);
        assert!(disk.space(root).unwrap().free > 0);
    });
}

#[test]
fn open_files_outlive_their_names() {
    on_both(|disk, root| {
        let file = disk.open(&root.join("file"), OpenMode::Create).unwrap();
        file.write_all_at(&[IoSlice::new(b"kept")], 0).unwrap();
        disk.rename(&root.join("file"), &root.join("other")).unwrap();
        disk.remove_file(&root.join("other")).unwrap();
        assert_eq!(file.read_vec(10, 0).unwrap(), b"kept");
    });
}

#[test]
fn locks_exclude_and_end() {
    on_both(|disk, root| {
        let path = root.join(".lock");
        let lock = disk.lock(&path).unwrap();
        assert!(lock.is_some());
        assert!(disk.lock(&path).unwrap().is_none());
        drop(lock);
        assert!(disk.lock(&path).unwrap().is_some());
    });
}

#[test]
fn files_are_replaced_atomically() {
    on_both(|disk, root| {
        let path = root.join("checkpoint");
        for text in ["a longer first text", "second"] {
            write_file_atomically(disk, &path, text.as_bytes()).unwrap();
            assert_eq!(read_file(disk, &path).unwrap(), text.as_bytes());
        }
        assert_eq!(disk.list(root).unwrap().len(), 1);
    });
}

#[test]
fn a_crash_takes_what_was_not_synced() {
    let root = Path::new("/");
    let path = root.join("file");
    let (mut torn, mut gone) = (0, 0);
    for seed in 0..100 {
        let disk = SimDisk::new();
        let file = disk.open(&path, OpenMode::Create).unwrap();
        file.write_all_at(&[IoSlice::new(b"synced")], 0).unwrap();
        file.sync_data().unwrap();
        if seed % 2 == 0 {
            disk.sync_dir(root).unwrap();
        }
        file.write_all_at(&[IoSlice::new(b" and not")], 6).unwrap();
        disk.crash(seed);
        assert!(file.len().is_err());
        match read_file(&disk, &path) {
            Ok(bytes) => {
                assert!(bytes.starts_with(b"synced"));
                torn += u32::from(bytes.len() > 6 && bytes != b"synced and not");
            }
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::NotFound);
                assert_eq!(seed % 2, 1);
                gone += 1;
            }
        }
    }
    assert!(torn > 10 && gone > 10, "{torn} {gone}");
}

#[test]
fn atomic_replacement_survives_crashes() {
    let path = Path::new("/checkpoint");
    for seed in 0..200 {
        let disk = SimDisk::new();
        write_file_atomically(&disk, path, b"old").unwrap();
        if seed % 4 != 0 {
            // Stop somewhere on the way.
            disk.fail(FaultOn::Sync, "", (seed % 2) as u32, io::ErrorKind::Other, None);
        }
        let done = write_file_atomically(&disk, path, b"new").is_ok();
        disk.crash(seed);
        let bytes = read_file(&disk, path).unwrap();
        assert!(bytes == b"new" || (!done && bytes == b"old"), "{seed} {done} {bytes:?}");
    }
}

#[test]
fn full_disks_and_injected_errors() {
    let disk = SimDisk::new();
    let file = disk.open(Path::new("/file.log"), OpenMode::Create).unwrap();
    disk.set_capacity(Some(10));
    file.write_all_at(&[IoSlice::new(b"12345678")], 0).unwrap();
    assert_eq!(disk.space(Path::new("/")).unwrap().free, 2);
    assert_eq!(kind(file.write_all_at(&[IoSlice::new(b"abcd")], 8)), io::ErrorKind::StorageFull);
    assert_eq!(file.read_vec(20, 0).unwrap(), b"12345678ab");
    file.set_len(8).unwrap();
    disk.set_capacity(None);
    disk.fail(FaultOn::Write, ".log", 1, io::ErrorKind::Other, Some(1));
    file.write_all_at(&[IoSlice::new(b"x")], 8).unwrap();
    assert_eq!(kind(file.write_all_at(&[IoSlice::new(b"y")], 9)), io::ErrorKind::Other);
    file.write_all_at(&[IoSlice::new(b"y")], 9).unwrap();
}
