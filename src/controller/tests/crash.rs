//! Crashes on a disk that forgets what was not synced: the log's files under random work, and whole nodes.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::{log_dir, run_node, topic, topics_in};
use crate::controller::hard_state::{HardState, HardStateFile};
use crate::controller::log_files::{Bounds, LogFiles};
use crate::controller::raft_types::{LogId, Vote};
use crate::metadata::Decision;
use crate::storage::disk::Disk;
use crate::storage::sim_disk::{FaultOn, SimDisk};

const SEGMENT_BYTES: u64 = 400;

/// The log and its vote as the log's thread uses them, beside what they must be.
struct Rig {
    disk: SimDisk,
    chance: StdRng,
    log: LogFiles,
    file: HardStateFile,
    state: HardState,
    model: Model,
}

#[derive(Clone, Debug, Default)]
struct Model {
    first: u64,
    /// What each entry from `first` on holds.
    entries: Vec<Bytes>,
    synced: u64,
    votes: u64,
    /// The highest index that a crash may leave the log at, when one hits work in progress.
    at_most: u64,
}

impl Model {
    fn next(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    fn truncate(&mut self, next: u64) {
        self.entries.truncate(usize::try_from(next - self.first).unwrap());
        self.synced = self.synced.min(next);
    }
}

fn dir() -> &'static Path {
    Path::new("/meta")
}

fn open(disk: &SimDisk, in_use: bool) -> (HardStateFile, HardState, LogFiles) {
    let (file, state) = HardStateFile::open(disk, dir(), in_use).unwrap();
    let bounds = Bounds { first: state.purged.map_or(0, |purged| purged.index + 1), durable: state.durable };
    let log = LogFiles::open(Arc::new(disk.clone()), dir(), SEGMENT_BYTES, bounds).unwrap();
    (file, state, log)
}

impl Rig {
    fn new(seed: u64) -> Rig {
        let disk = SimDisk::new();
        disk.create_dir_all(dir()).unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        let (file, state, log) = open(&disk, false);
        Rig { disk, chance: StdRng::seed_from_u64(seed), log, file, state, model: Model::default() }
    }

    fn save_state(&mut self) -> std::io::Result<()> {
        self.state.durable = self.log.durable();
        self.file.save(&self.state)
    }

    fn append(&mut self) -> std::io::Result<()> {
        let count = self.chance.random_range(1..5);
        let payloads: Vec<Bytes> = (0..count)
            .map(|_| {
                let len = self.chance.random_range(0..120);
                let fill: u8 = self.chance.random();
                Bytes::from(vec![fill; len])
            })
            .collect();
        let first = self.model.next();
        self.model.entries.extend(payloads.iter().cloned());
        self.model.at_most = self.model.next();
        self.log.append(first, &payloads, first)
    }

    fn sync(&mut self) -> std::io::Result<()> {
        self.log.sync()?;
        self.model.synced = self.model.next();
        Ok(())
    }

    fn truncate(&mut self) -> std::io::Result<()> {
        let since = self.chance.random_range(self.model.first..=self.model.next());
        // From here on the entries may go.
        self.model.synced = self.model.synced.min(since);
        self.state.durable = self.state.durable.min(since);
        self.file.save(&self.state)?;
        self.log.truncate(since)?;
        self.model.truncate(since);
        self.model.at_most = since;
        Ok(())
    }

    fn purge(&mut self) -> std::io::Result<()> {
        if self.model.synced == self.model.first {
            return Ok(());
        }
        let upto = self.chance.random_range(self.model.first..self.model.synced);
        self.state.purged = Some(LogId::new(Default::default(), upto));
        self.save_state()?;
        self.log.purge(upto + 1)?;
        self.model.entries.drain(..usize::try_from(upto + 1 - self.model.first).unwrap());
        self.model.first = upto + 1;
        Ok(())
    }

    /// A snapshot from elsewhere reaches beyond the log.
    fn install(&mut self) -> std::io::Result<()> {
        let upto = self.model.next() + self.chance.random_range(0..5);
        self.state.purged = Some(LogId::new(Default::default(), upto));
        self.model.at_most = upto + 1;
        self.save_state()?;
        self.log.purge(upto + 1)?;
        self.model.entries.clear();
        (self.model.first, self.model.synced) = (upto + 1, upto + 1);
        Ok(())
    }

    fn vote(&mut self) -> std::io::Result<()> {
        self.state.vote = Some(Vote::new(self.model.votes + 1, 1));
        self.save_state()?;
        self.model.votes += 1;
        Ok(())
    }

    fn work(&mut self) -> std::io::Result<()> {
        match self.chance.random_range(0..20) {
            0..8 => self.append(),
            8..14 => self.sync(),
            14..16 => self.truncate(),
            16..18 => self.purge(),
            18 => self.install(),
            _ => self.vote(),
        }
    }

    /// Loses power, opens again, and compares with the model.
    fn crash(&mut self, power_is_lost: bool) {
        if power_is_lost {
            self.disk.crash(self.chance.random());
        } else {
            self.disk.kill();
        }
        self.disk.heal();
        (self.file, self.state, self.log) = open(&self.disk, !self.model.entries.is_empty());
        let votes = self.state.vote.map_or(0, |vote| vote.leader_id.term);
        assert!(votes == self.model.votes || votes == self.model.votes + 1, "a vote was forgotten");
        self.model.votes = votes;
        let (first, next) = (self.log.first(), self.log.next());
        assert!(next >= self.model.synced.max(first), "synced {} found {next}", self.model.synced);
        assert!(next <= self.model.at_most.max(first), "{next} of at most {}", self.model.at_most);
        assert!(first >= self.model.first);
        let skipped = usize::try_from(first - self.model.first).unwrap().min(self.model.entries.len());
        let found = self.log.read(0, u64::MAX, u64::MAX).unwrap();
        assert_eq!(found.len() as u64, next - first);
        for (nth, frame) in found.iter().enumerate() {
            assert_eq!(frame.index, first + nth as u64);
            assert_eq!(frame.payload, self.model.entries[skipped + nth], "entry {}", frame.index);
        }
        self.model.entries = found.into_iter().map(|frame| frame.payload).collect();
        self.model.first = first;
        self.model.synced = next;
        self.model.at_most = next;
    }
}

#[test]
fn synced_entries_and_votes_survive_any_crash() {
    for seed in 0..400 {
        let mut rig = Rig::new(seed);
        for _ in 0..6 {
            let steps = rig.chance.random_range(0..40);
            if rig.chance.random_range(0..3) == 0 {
                let on = [FaultOn::Write, FaultOn::Sync, FaultOn::SetLen, FaultOn::Open, FaultOn::Remove];
                let on = on[rig.chance.random_range(0..on.len())];
                let after = rig.chance.random_range(0..30);
                rig.disk.fail(on, "", after, std::io::ErrorKind::Other, None);
            }
            // After the first error the files are not used again until they are opened anew.
            let _ = (0..steps).try_for_each(|_| rig.work());
            let power_is_lost = rig.chance.random_range(0..4) > 0;
            rig.crash(power_is_lost);
        }
    }
}

#[tokio::test]
async fn a_node_keeps_what_it_acknowledged_through_crashes() {
    for seed in 0..12 {
        let sim = SimDisk::new();
        let disk: Arc<dyn Disk> = Arc::new(sim.clone());
        disk.create_dir_all(dir()).unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        let mut acknowledged = Vec::new();
        let mut next = 0;
        for round in 0..4 {
            let (handle, node) = run_node(&disk, dir()).await;
            for nth in &acknowledged {
                assert!(handle.image().topics.by_name(&format!("t{nth}")).is_some(), "t{nth} is lost");
            }
            for _ in 0..5 {
                handle.run(move |_| Decision::new(vec![topic(next)], ())).await.unwrap();
                acknowledged.push(next);
                next += 1;
            }
            if round == 1 {
                node.snapshot_taken().await.unwrap();
            }
            // One more is on its way when the power goes.
            let last = next;
            let unanswered =
                tokio::spawn(async move { handle.run(move |_| Decision::new(vec![topic(last)], ())).await });
            next += 1;
            for _ in 0..seed {
                tokio::task::yield_now().await;
            }
            sim.crash(seed * 31 + round);
            node.shutdown().await;
            if unanswered.await.unwrap().is_ok() {
                acknowledged.push(last);
            }
        }
    }
}

#[tokio::test]
async fn a_failed_sync_stops_the_node_and_loses_nothing_acknowledged() {
    let sim = SimDisk::new();
    let disk: Arc<dyn Disk> = Arc::new(sim.clone());
    disk.create_dir_all(dir()).unwrap();
    let (handle, node) = run_node(&disk, dir()).await;
    handle.run(|_| Decision::new(vec![topic(0)], ())).await.unwrap();
    sim.fail(FaultOn::Sync, "raftlog", 0, std::io::ErrorKind::Other, None);
    let failed = handle.run(|_| Decision::new(vec![topic(1)], ())).await;
    assert!(failed.is_err(), "an answer after a failed sync");
    assert!(node.failed().await.contains("injected"));
    assert!(
        handle.run(|_| Decision::new(vec![topic(2)], ())).await.is_err(),
        "the disk is not trusted again"
    );
    node.shutdown().await;

    sim.crash(1);
    let (handle, node) = run_node(&disk, dir()).await;
    assert!(handle.image().topics.by_name("t0").is_some());
    node.shutdown().await;
}

#[tokio::test]
async fn a_full_disk_is_waited_for() {
    let sim = SimDisk::new();
    let disk: Arc<dyn Disk> = Arc::new(sim.clone());
    disk.create_dir_all(dir()).unwrap();
    let (handle, node) = run_node(&disk, dir()).await;
    // Not even what the ballast gives up is enough.
    sim.fail(FaultOn::Write, ".raftlog", 0, std::io::ErrorKind::StorageFull, None);
    let change = handle.run(|_| Decision::new(vec![topic(0)], ()));
    let mut change = std::pin::pin!(change);
    let unanswered = tokio::select! {
        biased;
        _ = &mut change => false,
        () = until(|| node.disk_is_full()) => true,
    };
    assert!(unanswered);
    sim.heal();
    change.await.unwrap();
    assert!(!node.disk_is_full());
    node.shutdown().await;
    assert!(sim.list(&log_dir(dir())).unwrap().len() >= 2);
}

#[tokio::test]
async fn a_vote_that_finds_no_room_is_written_as_soon_as_there_is_some() {
    let sim = SimDisk::new();
    let disk: Arc<dyn Disk> = Arc::new(sim.clone());
    disk.create_dir_all(dir()).unwrap();
    let (_, node) = run_node(&disk, dir()).await;
    node.shutdown().await;
    // More often than the ballast has pieces.
    sim.fail(FaultOn::Write, "raft-state", 0, std::io::ErrorKind::StorageFull, Some(10));
    let (handle, node) = run_node(&disk, dir()).await;
    handle.run(|_| Decision::new(vec![topic(0)], ())).await.unwrap();
    node.shutdown().await;
    let (handle, node) = run_node(&disk, dir()).await;
    assert!(handle.image().topics.by_name("t0").is_some());
    node.shutdown().await;
}

#[tokio::test]
async fn a_node_starts_and_changes_things_on_a_disk_without_a_free_byte() {
    let sim = SimDisk::new();
    let disk: Arc<dyn Disk> = Arc::new(sim.clone());
    disk.create_dir_all(dir()).unwrap();
    let (_, node) = run_node(&disk, dir()).await;
    node.shutdown().await;
    sim.set_capacity(Some(sim.used()));
    for start in 0..3 {
        let (handle, node) = run_node(&disk, dir()).await;
        for nth in 0..100 {
            handle.run(move |_| Decision::new(vec![topic(start * 100 + nth)], ())).await.unwrap();
        }
        assert_eq!(topics_in(&handle.image()).len() as u64, (start + 1) * 100);
        node.shutdown().await;
    }
}

async fn until(mut condition: impl FnMut() -> bool) {
    while !condition() {
        tokio::task::yield_now().await;
    }
}

/// A log of ten synced entries, closed.
fn ten_entries() -> (SimDisk, Bounds) {
    let disk = SimDisk::new();
    disk.create_dir_all(dir()).unwrap();
    let mut log = LogFiles::open(Arc::new(disk.clone()), dir(), SEGMENT_BYTES, Bounds::default()).unwrap();
    for index in 0..10 {
        log.append(index, &[Bytes::from(vec![7; 60])], index).unwrap();
        log.sync().unwrap();
    }
    (disk, Bounds { first: 0, durable: 0 })
}

fn refusal(disk: &SimDisk, bounds: Bounds) -> String {
    LogFiles::open(Arc::new(disk.clone()), dir(), SEGMENT_BYTES, bounds).unwrap_err().to_string()
}

fn segments(disk: &SimDisk) -> Vec<String> {
    let mut names: Vec<String> = disk.list(dir()).unwrap().into_iter().map(|entry| entry.name).collect();
    names.sort_unstable();
    names
}

fn damage(disk: &SimDisk, name: &str, at: u64) {
    let file = disk.open(&dir().join(name), crate::storage::disk::OpenMode::Write).unwrap();
    file.write_all_at(&[std::io::IoSlice::new(b"damage")], at).unwrap();
}

#[test]
fn damage_in_the_middle_is_refused() {
    let (disk, bounds) = ten_entries();
    damage(&disk, &segments(&disk)[0], 20);
    assert_eq!(
        refusal(&disk, bounds),
        "/meta/00000000000000000000.raftlog is damaged at byte 16: entry 0 had been synced and cannot be read"
    );
    let (disk, bounds) = ten_entries();
    let last = segments(&disk).pop().unwrap();
    damage(&disk, &last, 20);
    assert!(refusal(&disk, bounds).contains("had been synced"), "a later frame of the segment says so");
}

#[test]
fn damage_at_the_end_is_refused_when_the_end_was_written_down() {
    let (disk, bounds) = ten_entries();
    let last = segments(&disk).pop().unwrap();
    let len = disk.stat(&dir().join(&last)).unwrap().len;
    damage(&disk, &last, len - 6);
    assert!(refusal(&disk, Bounds { durable: 10, ..bounds }).contains("entry 9 had been synced"));
    let cut = LogFiles::open(Arc::new(disk), dir(), SEGMENT_BYTES, bounds).unwrap();
    assert_eq!(cut.next(), 9, "without that it looks as if a crash had torn it off");
}

#[test]
fn a_missing_segment_is_refused() {
    let (disk, bounds) = ten_entries();
    disk.remove_file(&dir().join(&segments(&disk)[1])).unwrap();
    assert!(refusal(&disk, bounds).contains("a segment is missing"));
    let (disk, bounds) = ten_entries();
    disk.remove_file(&dir().join(segments(&disk).pop().unwrap())).unwrap();
    assert!(refusal(&disk, Bounds { durable: 10, ..bounds }).contains("had been synced"));
}

#[test]
fn a_log_without_its_vote_is_refused() {
    let (disk, _) = ten_entries();
    assert!(HardStateFile::open(&disk, dir(), true).is_err());
}
