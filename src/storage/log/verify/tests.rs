//! Sound directories have no findings, and each kind of damage is found where it is.

use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;

use super::super::tests::{DIR, batch, open_args};
use super::super::*;
use super::verify;
use crate::storage::disk::{Disk, OpenMode};
use crate::storage::sim_disk::SimDisk;
use crate::types::{ProducerEpoch, ProducerId};
use crate::wire::batch_builder::BatchBuilder;
use crate::wire::compression::Compression;

/// A closed log with several segments.
fn sound() -> SimDisk {
    let disk = SimDisk::new();
    let config = LogConfig { segment_bytes: 1000, index_interval_bytes: 100, ..LogConfig::default() };
    let args = open_args(Offset::ZERO, Offset::ZERO, false);
    let mut log = Log::create(Arc::new(disk.clone()), Path::new(DIR), Arc::new(config), &args).unwrap();
    for index in 0..20 {
        let compression = if index % 2 == 0 { Compression::None } else { Compression::Lz4 };
        let batch = batch(&[1000 + index, 1000], &[b'v'; 80], compression);
        log.append_as_leader(&batch, LeaderEpoch(0), Origin::Client, TimestampMs(0)).unwrap();
        let mut sequenced = BatchBuilder::new().producer(ProducerId(1), ProducerEpoch(0), index as i32);
        sequenced.push(TimestampMs(1000), None, Some(b"value"), &[]);
        let sequenced = sequenced.build().unwrap();
        log.append_as_leader(&sequenced, LeaderEpoch(0), Origin::Client, TimestampMs(0)).unwrap();
    }
    log.close().unwrap();
    disk
}

fn damage(disk: &SimDisk, file: &str, position: u64, bytes: &[u8]) {
    let file = disk.open(&Path::new(DIR).join(file), OpenMode::Write).unwrap();
    file.write_all_at(&[IoSlice::new(bytes)], position).unwrap();
}

fn found(disk: &SimDisk) -> Vec<(String, Option<u64>, bool)> {
    let findings = verify(disk, Path::new(DIR)).unwrap().findings;
    findings.into_iter().map(|finding| (finding.file, finding.position, finding.is_damage)).collect()
}

const FIRST: &str = "00000000000000000000.log";

#[test]
fn a_sound_directory_has_no_findings() {
    let verified = verify(&sound(), Path::new(DIR)).unwrap();
    assert_eq!(verified.findings, []);
    assert_eq!((verified.batches, verified.records), (40, 60));
    assert_eq!((verified.start, verified.end), (Offset(0), Offset(60)));
    assert!(verified.segments > 3 && verified.bytes > 3000);
}

#[test]
fn nothing_is_changed_by_looking() {
    let disk = sound();
    damage(&disk, FIRST, 70, b"x");
    let before = (disk.counts().written_bytes, disk.list(Path::new(DIR)).unwrap().len());
    verify(&disk, Path::new(DIR)).unwrap();
    assert_eq!((disk.counts().written_bytes, disk.list(Path::new(DIR)).unwrap().len()), before);
}

#[test]
fn every_kind_of_damage_is_found_where_it_is() {
    let disk = sound();
    damage(&disk, FIRST, 70, b"x");
    assert_eq!(found(&disk), [(FIRST.to_owned(), Some(0), true)]);

    // A length that cannot be, within the log and at its end.
    let disk = sound();
    damage(&disk, FIRST, 8, &[0xff; 4]);
    assert!(found(&disk).contains(&(FIRST.to_owned(), Some(0), true)));
    let disk = sound();
    let names = disk.list(Path::new(DIR)).unwrap();
    let mut logs: Vec<String> =
        names.into_iter().map(|entry| entry.name).filter(|name| name.ends_with(".log")).collect();
    logs.sort();
    let last = logs.last().unwrap();
    let end = disk.stat(&Path::new(DIR).join(last)).unwrap().len;
    damage(&disk, last, end, b"torn");
    assert_eq!(found(&disk), [(last.clone(), Some(end), false)]);

    // An index that leads elsewhere.
    let disk = sound();
    damage(&disk, "00000000000000000000.index", 7, &[1]);
    assert!(found(&disk).iter().any(|(file, _, is_damage)| file.ends_with(".index") && *is_damage));

    // What a start puts right is no damage.
    let disk = sound();
    disk.remove_file(&Path::new(DIR).join("00000000000000000000.timeindex")).unwrap();
    let second = &logs[1].replace(".log", ".snapshot");
    damage(&disk, second, 0, b"no");
    disk.open(&Path::new(DIR).join("00000000000000000000.log.cleaned"), OpenMode::Create).unwrap();
    assert!(found(&disk).iter().all(|(_, _, is_damage)| !is_damage));
    assert_eq!(found(&disk).len(), 3);

    // Segments that overlap, or have a gap between them.
    let disk = sound();
    disk.rename(&Path::new(DIR).join(&logs[1]), &Path::new(DIR).join("00000000000000000001.log")).unwrap();
    assert!(found(&disk).iter().any(|(_, _, is_damage)| *is_damage));
    let disk = sound();
    disk.remove_file(&Path::new(DIR).join(&logs[1])).unwrap();
    assert!(found(&disk).contains(&(logs[2].clone(), None, false)));
}

/// What older versions of Kafka wrote is as sound as the rest: one message of these is damaged.
#[test]
fn messages_of_the_formats_before_are_looked_at_as_well() {
    let disk = SimDisk::new();
    disk.create_dir_all(Path::new(DIR)).unwrap();
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/storage/dump/legacy-0");
    for ending in ["log", "index", "timeindex"] {
        let name = format!("00000000000000000000.{ending}");
        let bytes =
            crate::storage::disk::read_file(&crate::storage::disk::RealDisk, &dir.join(&name)).unwrap();
        let file = disk.open(&Path::new(DIR).join(&name), OpenMode::Create).unwrap();
        file.write_all_at(&[IoSlice::new(&bytes)], 0).unwrap();
    }
    let verified = verify(&disk, Path::new(DIR)).unwrap();
    let damages: Vec<_> = verified.findings.iter().filter(|finding| finding.is_damage).collect();
    assert_eq!(damages.len(), 1, "{damages:?}");
    assert_eq!((damages[0].file.as_str(), damages[0].position), (FIRST, Some(663)));
    // Damage within a message is found where the message begins, and hides none that follow.
    damage(&disk, FIRST, 130, &[0xff]);
    damage(&disk, FIRST, 310, &[0xff]);
    let mut found: Vec<_> = found(&disk).into_iter().filter(|(.., is_damage)| *is_damage).collect();
    found.sort();
    let positions: Vec<_> = found.iter().map(|(_, position, _)| position.unwrap()).collect();
    assert_eq!(positions, [78, 284, 663]);
}
