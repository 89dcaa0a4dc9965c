//! Whole nodes: start, change, stop, start again.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

use super::{log_dir, real, run_node, topic, topics_in};
use crate::controller::dump::{self, DumpedPayload};
use crate::controller::{ControllerConfig, Endpoint, ProposeError, SnapshotLimits, StartError, start};
use crate::metadata::{Decision, Image, ImageVersion};
use crate::storage::disk::Disk;
use crate::storage::sim_disk::SimDisk;
use crate::types::{NodeId, Offset, TimestampMs};

#[tokio::test]
async fn what_was_acknowledged_is_there_after_a_restart() {
    let (dir, disk) = real();
    let (handle, node) = run_node(&disk, dir.path()).await;
    assert_eq!(handle.image().version, ImageVersion(1), "the first record is in it");
    for nth in 0..10 {
        handle.run(move |_| Decision::new(vec![topic(nth)], ())).await.unwrap();
        assert!(handle.image().topics.by_name(&format!("t{nth}")).is_some(), "applied before the answer");
    }
    let before = handle.image();
    node.shutdown().await;

    let (handle, node) = run_node(&disk, dir.path()).await;
    assert_eq!(handle.image(), before);
    assert_eq!(before.version, ImageVersion(11), "the first record was not written again");
    node.shutdown().await;
}

#[test]
fn a_directory_without_metadata_says_so() {
    let (dir, disk) = real();
    let error = dump::open(Arc::clone(&disk), &log_dir(dir.path())).unwrap_err();
    let shown = error.to_string();
    assert!(shown.ends_with("has no metadata: no controller has run on it"), "{shown}");
}

#[tokio::test]
async fn an_image_comes_back_from_snapshot_and_log() {
    let (dir, disk) = real();
    let (handle, node) = run_node(&disk, dir.path()).await;
    for nth in 0..20 {
        handle.run(move |_| Decision::new(vec![topic(nth)], ())).await.unwrap();
    }
    node.snapshot_taken().await.unwrap();
    handle.run(|_| Decision::new(vec![topic(20)], ())).await.unwrap();
    let before = handle.image();
    node.shutdown().await;

    let dump = dump::open(Arc::clone(&disk), &log_dir(dir.path())).unwrap();
    let snapshot = dump.snapshot.unwrap();
    assert_eq!(snapshot.version, ImageVersion(21));
    let folded = Image::from_snapshot(snapshot.version, snapshot.records.iter().map(|(record, _)| record));
    assert_eq!(topics_in(&folded).len(), 20);

    let (handle, node) = run_node(&disk, dir.path()).await;
    assert_eq!(handle.image(), before);
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_decisions_share_entries_and_are_all_answered() {
    let (dir, disk) = real();
    let (handle, node) = run_node(&disk, dir.path()).await;
    // The first decision holds the proposer until all the others wait.
    let (release, held) = mpsc::channel::<()>();
    let (begins, begun) = tokio::sync::oneshot::channel();
    let first = tokio::spawn({
        let handle = handle.clone();
        async move {
            let mut held = Some((held, begins));
            let decide = move |_: &Image| {
                if let Some((held, begins)) = held.take() {
                    begins.send(()).unwrap();
                    held.recv().unwrap();
                }
                Decision::new(vec![topic(0)], 0)
            };
            handle.run(decide).await
        }
    });
    begun.await.unwrap();
    let waiting: Vec<_> = (1..=200)
        .map(|nth| {
            let handle = handle.clone();
            tokio::spawn(async move {
                handle
                    .run(move |image| {
                        // Each sees what those before it in the batch will have done.
                        let at = u64::try_from(image.topics.len()).unwrap();
                        Decision::new(vec![topic(at)], (nth, at))
                    })
                    .await
            })
        })
        .collect();
    tokio::task::yield_now().await;
    release.send(()).unwrap();
    assert_eq!(first.await.unwrap(), Ok(0));
    let mut seen = Vec::new();
    for (nth, task) in (1..).zip(waiting) {
        let (answered, at) = task.await.unwrap().unwrap();
        assert_eq!(answered, nth);
        seen.push(at);
    }
    seen.sort_unstable();
    assert_eq!(seen, (1..=200).collect::<Vec<_>>(), "none was decided on the same image as another");
    node.shutdown().await;
    let dump = dump::open(disk, &log_dir(dir.path())).unwrap();
    let with_records = dump
        .entries
        .filter(|entry| matches!(entry.as_ref().unwrap().payload, DumpedPayload::Records { .. }))
        .count();
    assert!(with_records < 200, "{with_records} entries for 201 decisions");
}

#[tokio::test]
async fn a_decision_without_records_costs_no_entry() {
    let (dir, disk) = real();
    let (handle, node) = run_node(&disk, dir.path()).await;
    let before = handle.quorum_status(TimestampMs(0)).high_watermark;
    assert_eq!(handle.run(|image| Decision::reply(image.version)).await, Ok(ImageVersion(1)));
    assert_eq!(handle.quorum_status(TimestampMs(0)).high_watermark, before);
    node.shutdown().await;
}

#[tokio::test]
async fn a_panicking_decision_fails_alone() {
    let (dir, disk) = real();
    let (handle, node) = run_node(&disk, dir.path()).await;
    let panics = handle.run(|_| -> Decision<()> { panic!("a defect, made on purpose") });
    let misfits = handle.run(|_| Decision::new(vec![topic(7), topic(7)], ()));
    let works = handle.run(|_| Decision::new(vec![topic(1)], "done"));
    let (panics, misfits, works) = tokio::join!(panics, misfits, works);
    assert_eq!(panics, Err(ProposeError::Defect));
    assert_eq!(misfits, Err(ProposeError::Defect));
    assert_eq!(works, Ok("done"));
    assert_eq!(topics_in(&handle.image()), ["t1"]);
    node.shutdown().await;
}

#[tokio::test]
async fn a_stopped_node_answers_everybody() {
    let (dir, disk) = real();
    let (handle, node) = run_node(&disk, dir.path()).await;
    node.shutdown().await;
    let after = handle.run(|_| Decision::new(vec![topic(0)], ())).await;
    assert_eq!(after, Err(ProposeError::ShuttingDown));
}

#[tokio::test]
async fn subscribers_hear_of_changes() {
    let (dir, disk) = real();
    let (handle, node) = run_node(&disk, dir.path()).await;
    let seen = handle.image().version;
    let newer = tokio::spawn({
        let handle = handle.clone();
        async move { handle.changed(seen).await }
    });
    handle.run(|_| Decision::new(vec![topic(3)], ())).await.unwrap();
    assert_eq!(topics_in(&newer.await.unwrap()), ["t3"]);
    node.shutdown().await;
}

#[tokio::test]
async fn the_quorum_tells_how_it_is() {
    let (dir, disk) = real();
    let (handle, node) = run_node(&disk, dir.path()).await;
    let status = handle.quorum_status(TimestampMs(5));
    assert_eq!(status.leader, Some(NodeId(1)));
    assert!(status.epoch >= 1);
    // Membership, the leader's first entry, the cluster's first records.
    assert_eq!(status.high_watermark, Offset(3));
    assert_eq!(status.voters.len(), 1);
    assert_eq!(status.voters[0].log_end, Some(Offset(3)));
    assert_eq!(status.voters[0].last_caught_up, Some(TimestampMs(5)));
    assert!(status.observers.is_empty());
    node.shutdown().await;
}

#[tokio::test]
async fn a_quorum_it_cannot_be_part_of_is_refused() {
    let (dir, disk) = real();
    let (_, node) = run_node(&disk, dir.path()).await;
    node.shutdown().await;

    let mut other = super::config(Arc::clone(&disk), dir.path());
    other.voters = [(NodeId(2), Default::default())].into();
    other.node_id = NodeId(2);
    assert!(matches!(start(other).await, Err(StartError::OtherQuorum { node: NodeId(2), .. })));
}

#[tokio::test]
async fn each_decision_runs_once_when_nobody_interferes() {
    let (dir, disk) = real();
    let (handle, node) = run_node(&disk, dir.path()).await;
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    handle
        .run(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            Decision::new(vec![topic(0)], ())
        })
        .await
        .unwrap();
    assert_eq!(runs.load(Ordering::Relaxed), 1);
    node.shutdown().await;
}

#[tokio::test]
async fn a_snapshot_lets_the_log_go() {
    let sim = SimDisk::new();
    let disk: Arc<dyn Disk> = Arc::new(sim.clone());
    let dir = Path::new("/meta");
    disk.create_dir_all(dir).unwrap();
    let mut small = super::config(Arc::clone(&disk), dir);
    small.segment_bytes = 8 * 1024;
    let (handle, node) = start(small).await.unwrap();
    for nth in 0..1_500 {
        handle.run(move |_| Decision::new(vec![topic(nth)], ())).await.unwrap();
    }
    let before = (handle.image(), segments(&disk, dir));
    node.snapshot_taken().await.unwrap();
    // The purge follows the snapshot; the change comes after both.
    handle.run(|_| Decision::new(vec![topic(1_500)], ())).await.unwrap();
    assert!(segments(&disk, dir) < before.1, "{} segments of {} are left", segments(&disk, dir), before.1);
    node.shutdown().await;

    let dump = dump::open(Arc::clone(&disk), &log_dir(dir)).unwrap();
    let last = dump.snapshot.unwrap().last_index.unwrap();
    let entries: Vec<_> = dump.entries.map(Result::unwrap).collect();
    assert!(
        entries[0].index > 0 && entries[0].index < last,
        "a thousand entries are kept beside the snapshot"
    );
    assert_eq!(entries.last().unwrap().index, last + 1);
    assert!(matches!(&entries.last().unwrap().payload,
        DumpedPayload::Records { base, records } if *base == before.0.version && records[0].0 == topic(1_500)));

    sim.crash(3);
    let (handle, node) = run_node(&disk, dir).await;
    assert_eq!(handle.image().topics.len(), 1_501);
    node.shutdown().await;
}

fn segments(disk: &Arc<dyn Disk>, dir: &Path) -> usize {
    let names = disk.list(&log_dir(dir)).unwrap();
    names.iter().filter(|entry| entry.name.ends_with(".raftlog")).count()
}

#[tokio::test]
async fn a_change_of_address_is_noted() {
    let (dir, disk) = real();
    let (_, node) = run_node(&disk, dir.path()).await;
    node.shutdown().await;
    let mut moved = super::config(Arc::clone(&disk), dir.path());
    let endpoint = Endpoint { listener: "CONTROLLER".into(), host: "h".into(), port: 9 };
    moved.me.endpoints.push(endpoint.clone());
    let (handle, node) = start(moved).await.unwrap();
    assert_eq!(handle.quorum_status(TimestampMs(0)).voters[0].endpoints, [endpoint]);
    node.shutdown().await;
}

#[tokio::test]
async fn a_change_costs_one_sync() {
    let sim = SimDisk::new();
    let disk: Arc<dyn Disk> = Arc::new(sim.clone());
    let dir = Path::new("/meta");
    disk.create_dir_all(dir).unwrap();
    let (handle, node) = run_node(&disk, dir).await;
    let before = sim.counts();
    handle.run(|_| Decision::new(vec![topic(0)], ())).await.unwrap();
    let after = sim.counts();
    assert_eq!((after.syncs - before.syncs, after.writes - before.writes), (1, 1));
    node.shutdown().await;
}

#[tokio::test]
async fn a_growing_log_takes_a_snapshot_by_itself() {
    takes_a_snapshot(SnapshotLimits { bytes: 2_000, interval: None }, 50).await;
}

#[tokio::test]
async fn an_old_snapshot_is_replaced_when_there_are_changes() {
    let interval = Some(std::time::Duration::from_millis(1));
    takes_a_snapshot(SnapshotLimits { bytes: 1 << 40, interval }, 1).await;
}

async fn takes_a_snapshot(snapshots: SnapshotLimits, changes: u64) {
    let sim = SimDisk::new();
    let disk: Arc<dyn Disk> = Arc::new(sim.clone());
    let dir = Path::new("/meta");
    disk.create_dir_all(dir).unwrap();
    let (handle, node) =
        start(ControllerConfig { snapshots, ..super::config(Arc::clone(&disk), dir) }).await.unwrap();
    for nth in 0..changes {
        handle.run(move |_| Decision::new(vec![topic(nth)], ())).await.unwrap();
    }
    let is_there = || {
        let names = disk.list(&log_dir(dir)).unwrap();
        names.iter().any(|entry| entry.name.ends_with(".snapshot"))
    };
    while !is_there() {
        tokio::task::yield_now().await;
    }
    node.shutdown().await;
}
