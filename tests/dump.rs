//! `floodmark log dump` says what `kafka-dump-log.sh` of Kafka 4.4 says: `tests/storage/dump/` has files of partitions, and for
//! each case of `cases.txt` the output of Kafka's tool.

#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/storage/dump")
}

/// What the command prints in this directory: its exit code, output and errors.
fn dump_in(dir: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_floodmark"));
    let command = command.env_clear().current_dir(dir).args(["log", "dump"]).args(arguments);
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

/// Each line of `cases.txt`: a name, under which the output lies, and what the tool was called with.
#[test]
fn the_output_is_that_of_kafkas_tool() {
    let cases = std::fs::read_to_string(dir().join("cases.txt")).unwrap();
    let mut count = 0;
    for case in cases.lines() {
        let words: Vec<&str> = case.split(' ').collect();
        let (code, found, _) = dump_in(&dir(), &words[1..]);
        let expected = std::fs::read_to_string(dir().join(format!("{}.txt", words[0]))).unwrap();
        assert_eq!(code, Some(0), "{case}");
        for (at, (found, expected)) in found.lines().zip(expected.lines()).enumerate() {
            assert_eq!(found, expected, "{case}, line {}", at + 1);
        }
        assert_eq!(found.lines().count(), expected.lines().count(), "{case}");
        count += 1;
    }
    assert!(count >= 10, "{count} cases");
}

#[test]
fn what_kafkas_tool_has_and_this_does_not_is_refused_with_the_reason() {
    for (option, reason) in [
        (&["--share-group-state-decoder"][..], "--share-group-state-decoder: there are no share groups yet"),
        (&["--remote-log-metadata-decoder"], "--remote-log-metadata-decoder: there is no tiered storage"),
        (&["--key-decoder-class", "a.B"], "--key-decoder-class: names a class of Java"),
        (&["--value-decoder-class", "a.B"], "--value-decoder-class: names a class of Java"),
    ] {
        let (code, out, errors) = dump_in(&dir(), &[option, &["--files", "no-such-file.log"]].concat());
        assert_eq!((code, out.as_str()), (Some(1), ""), "{option:?}");
        assert!(errors.contains(reason), "{errors}");
    }
    // It bounds what Kafka's tool reads at a time.
    let (code, _, errors) = dump_in(&dir(), &["--max-message-size", "1", "00000000000000000042.log"]);
    assert_eq!(code, Some(1));
    assert!(errors.contains("No such file"), "{errors}");
}

/// A directory of a partition with one damaged byte in its segment.
fn damaged(at: usize) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(dir().join("orders-0")).unwrap() {
        let entry = entry.unwrap();
        let mut bytes = std::fs::read(entry.path()).unwrap();
        if entry.path().extension().is_some_and(|extension| extension == "log") {
            bytes[at] ^= 0x40;
        }
        std::fs::write(copy.path().join(entry.file_name()), bytes).unwrap();
    }
    copy
}

#[test]
fn a_damaged_batch_is_shown_as_such_and_those_behind_it_too() {
    let log = "00000000000000000000.log";
    let (_, whole, _) = dump_in(&dir().join("orders-0"), &[log]);
    // The sum of the first batch, and the offset of its last record.
    for at in [18, 26] {
        let dir = damaged(at);
        let (code, found, _) = dump_in(dir.path(), &[log]);
        assert_eq!(code, Some(0));
        assert_eq!(found.lines().count(), whole.lines().count());
        assert_eq!(found.matches("isvalid: false").count(), 1, "{found}");
        let batch = found.lines().nth(2).unwrap();
        assert!(batch.ends_with("isvalid: false"), "{batch}");
    }
    // The last offsets of the first two batches.
    let indexes = [
        (26, "00000000000000000000.timeindex", "The following indexed offsets are not found in :"),
        (246 + 26, "00000000000000000000.index", "Mismatches in :"),
    ];
    for (at, index, complaint) in indexes {
        let dir = damaged(at);
        let (code, _, complaints) = dump_in(dir.path(), &[index]);
        assert_eq!(code, Some(0));
        assert!(complaints.starts_with(complaint), "{complaints}");
    }
    // A length that leads nowhere.
    let dir = damaged(9);
    let (code, found, _) = dump_in(dir.path(), &[log]);
    assert_eq!(code, Some(0));
    assert!(found.contains("invalid bytes at the end of 00000000000000000000.log"), "{found}");
}

/// An index entry that leads into the middle of a batch, behind the end, or nowhere ends nothing.
#[test]
fn an_index_entry_that_leads_astray_is_told_and_the_rest_is_shown() {
    let name = "00000000000000000000.index";
    let partition = dir().join("orders-0");
    let sound = std::fs::read(partition.join(name)).unwrap();
    let (_, lines, _) = dump_in(&partition, &[name]);
    assert!(sound.len() >= 8 && lines.contains("position: "));
    for position in [1, 20, 300, 1 << 20, u32::MAX] {
        let copy = damaged(18);
        let mut index = sound.clone();
        index[4..8].copy_from_slice(&u32::to_be_bytes(position));
        std::fs::write(copy.path().join(name), index).unwrap();
        let (code, shown, complaints) = dump_in(copy.path(), &[name]);
        assert_eq!(code, Some(0), "{position}: {complaints}");
        assert_eq!(shown.lines().count(), lines.lines().count(), "{position}");
        assert!(complaints.contains("Mismatches in :"), "{position}: {complaints}");
        assert_eq!(dump_in(copy.path(), &["00000000000000000000.timeindex"]).0, Some(0), "{position}");
    }
}

#[test]
fn directories_and_what_is_not_known_are_told() {
    let (code, found, _) = dump_in(&dir(), &["orders-0"]);
    assert_eq!(code, Some(0));
    for kind in [".index", ".log", ".snapshot", ".timeindex", ".txnindex", "leader-epoch-checkpoint"] {
        assert!(found.lines().any(|line| line.starts_with("Dumping ") && line.ends_with(kind)), "{kind}");
    }
    assert!(found.contains("\nepoch: 0 startOffset: 0\n"), "{found}");
    let (code, _, complaints) = dump_in(&dir(), &["cases.txt"]);
    assert_eq!((code, complaints.as_str()), (Some(0), "Ignoring unknown file cases.txt\n"));
    let (code, _, complaints) = dump_in(&dir(), &["missing/00000000000000000000.log"]);
    assert_eq!(code, Some(1));
    assert!(complaints.starts_with("missing/00000000000000000000.log: "), "{complaints}");
    let (code, ..) = dump_in(&dir(), &["--print-data-log"]);
    assert_eq!(code, Some(2), "no files");
}
