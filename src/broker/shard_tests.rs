//! Tests of the shard with its log, core, flusher and waiters together, driven by hand.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt as _;

use super::lease::{LEASE_MS, Lease};
use super::mailbox::Message;
use super::messages::{ProduceError, Produced};
use super::partitions::Role;
use super::reply::Gathered;
use super::rig::{ME, Rig, follow, id, lead, lead_of, readable, records, replica_config};
use super::waiters::{Bound, FetchWaiter};
use crate::replica::{AckError, Acks};
use crate::storage::disk::RealDisk;
use crate::storage::log::{AppendError, LogConfig};
use crate::types::{LeaderEpoch, NodeId, Offset, ProducerEpoch, ProducerId, TimestampMs};
use crate::wire::batch_builder::BatchBuilder;

type Answers = Option<Vec<Result<Produced, ProduceError>>>;

fn rig() -> (tempfile::TempDir, Rig) {
    let dir = tempfile::tempdir().unwrap();
    let rig = Rig::new(Arc::new(RealDisk), dir.path());
    (dir, rig)
}

fn now(gathered: Gathered<Result<Produced, ProduceError>>) -> Answers {
    gathered.all().now_or_never()
}

fn base_offsets(answers: Answers) -> Vec<i64> {
    answers.expect("answered").into_iter().map(|answer| answer.expect("appended").base_offset.0).collect()
}

#[test]
fn an_answer_leaves_after_the_flush_and_readers_see_it_then() {
    let (_dir, mut rig) = rig();
    let partition = rig.host(id(1, 0), LogConfig::default(), lead(1, &[1]));
    assert_eq!(partition.leadership().role, Role::Leader);
    let mut consumer = FetchWaiter::new(1);
    consumer.register(&partition.waiters, Bound::HighWatermark);
    let mut follower = FetchWaiter::new(1);
    follower.register(&partition.waiters, Bound::LogEnd);

    let all = rig.produce(Some(Acks::All), vec![(id(1, 0), records(&["a", "b"]))]);
    let one = rig.produce(Some(Acks::Leader), vec![(id(1, 0), records(&["c"]))]);
    let none = rig.produce(None, vec![(id(1, 0), records(&["d"]))]);
    assert_eq!(base_offsets(now(none)), [3]);
    assert_eq!((partition.view().log_end, partition.view().high_watermark), (Offset(4), Offset(0)));
    assert_eq!(readable(&partition), 0);
    assert!(consumer.enough().now_or_never().is_none());
    assert!(follower.enough().now_or_never().is_some());

    // The three appends wait as one sync.
    assert_eq!(rig.flush(), 1);
    assert_eq!(base_offsets(now(all)), [0]);
    assert_eq!(base_offsets(now(one)), [2]);
    assert_eq!(partition.view().high_watermark, Offset(4));
    assert!(readable(&partition) > 0);
    assert!(consumer.enough().now_or_never().is_some());
    assert_eq!(rig.flush(), 0);
}

#[test]
fn without_durable_acknowledgement_nothing_waits_for_the_disk() {
    let (_dir, mut rig) = rig();
    let config =
        LogConfig { flush_before_ack: false, flush_messages: 3, flush_ms: 500, ..LogConfig::default() };
    let partition = rig.host(id(1, 0), config, lead(1, &[1]));
    let all = rig.produce(Some(Acks::All), vec![(id(1, 0), records(&["a", "b"]))]);
    assert_eq!(base_offsets(now(all)), [0]);
    assert_eq!(partition.view().high_watermark, Offset(2));
    assert_eq!(rig.flush(), 0);
    // flush.messages
    let _ = rig.produce(Some(Acks::All), vec![(id(1, 0), records(&["c"]))]);
    assert_eq!(rig.flush(), 1);
    assert_eq!(partition.view().flushed, Offset(3));
    // flush.ms
    let _ = rig.produce(Some(Acks::All), vec![(id(1, 0), records(&["d"]))]);
    rig.pass(499);
    assert_eq!(rig.flush(), 0);
    assert!(rig.shard.next_deadline().unwrap() <= rig.now.monotonic.plus(1));
    rig.pass(1);
    assert_eq!(rig.flush(), 1);
    assert_eq!(partition.view().flushed, Offset(4));
}

#[test]
fn a_leader_whose_lease_has_run_out_promises_nothing_that_others_might_not_keep() {
    let (_dir, mut rig) = rig();
    let lease = Lease::expired();
    rig.shard = rig.shard.with_lease(lease.clone());
    rig.host(id(1, 0), LogConfig::default(), lead(1, &[1, 2]));
    // Nobody else is in sync, and nobody may be elected uncleanly.
    rig.host(id(1, 1), LogConfig::default(), lead_of(&[1, 2, 3], 1, &[1]));
    let both = || vec![(id(1, 0), records(&["a"])), (id(1, 1), records(&["a"]))];
    let is_refused = |answers: &[Result<Produced, ProduceError>]| {
        // The partition that nobody else could lead goes on.
        assert!(answers[1].is_ok());
        matches!(answers[0], Err(ProduceError::NotLeader | ProduceError::Ack(AckError::NotLeader, _)))
    };
    for acks in [None, Some(Acks::Leader), Some(Acks::All)] {
        let produced = rig.produce(acks, both());
        rig.flush();
        assert!(is_refused(&now(produced).expect("answered")));
    }
    lease.renew(rig.now.monotonic);
    let produced = rig.produce(Some(Acks::Leader), both());
    rig.flush();
    assert!(!is_refused(&now(produced).expect("answered")));
    // Appended in time, but on the disk only after the process was stopped for a while.
    let produced = rig.produce(Some(Acks::Leader), both());
    rig.now.monotonic = rig.now.monotonic.plus(LEASE_MS);
    rig.flush();
    assert!(is_refused(&now(produced).expect("answered")));
}

/// A leader that is alone in sync may have been replaced: by one of the eligible leader replicas when too few are in sync,
/// by anybody when leaders may be elected uncleanly.
#[test]
fn a_leader_without_lease_that_is_alone_in_sync_waits_for_it_where_others_may_lead() {
    let (_dir, mut rig) = rig();
    let lease = Lease::expired();
    lease.renew(rig.now.monotonic);
    rig.shard = rig.shard.with_lease(lease.clone());
    let log = Arc::new(LogConfig::default());
    let mut settings = replica_config(&log);
    let partitions: Vec<_> = (0..3)
        .map(|partition| rig.host(id(1, partition), LogConfig::default(), lead_of(&[1, 2, 3], 1, &[1])))
        .collect();
    settings.leader.min_insync_replicas = 2;
    rig.tell(Message::Configure(id(1, 0), log.clone(), settings));
    (settings.leader.min_insync_replicas, settings.leader.unclean_election) = (1, true);
    rig.tell(Message::Configure(id(1, 1), log, settings));
    let produce = |rig: &mut Rig, acks, partitions: &[i32]| {
        rig.produce(acks, partitions.iter().map(|partition| (id(1, *partition), records(&["a"]))).collect())
    };

    // Appended in time, and on the disk too late.
    let one = produce(&mut rig, Some(Acks::Leader), &[0, 1, 2]);
    let all = produce(&mut rig, Some(Acks::All), &[1, 2]);
    rig.now.monotonic = rig.now.monotonic.plus(LEASE_MS);
    rig.flush();
    let one = now(one).expect("answered");
    for deposed in &one[..2] {
        assert!(matches!(deposed, Err(ProduceError::Ack(AckError::NotLeader, _))));
    }
    assert!(one[2].is_ok());
    assert_eq!((readable(&partitions[1]), readable(&partitions[2]) > 0), (0, true));
    // Not even written.
    let late = now(produce(&mut rig, None, &[0, 1, 2])).expect("answered");
    assert!(late[..2].iter().all(|answer| matches!(answer, Err(ProduceError::NotLeader))) && late[2].is_ok());

    // It was not replaced after all.
    let due = rig.shard.next_deadline().expect("it looks again");
    assert!(due <= rig.now.monotonic.plus(1000));
    lease.renew(due);
    rig.pass(due.since(rig.now.monotonic));
    assert!(now(all).expect("answered").iter().all(Result::is_ok));
    assert!(readable(&partitions[1]) > 0);
}

#[test]
fn one_request_for_several_partitions_is_one_answer() {
    let (_dir, mut rig) = rig();
    rig.host(id(1, 0), LogConfig::default(), lead(1, &[1]));
    rig.host(id(1, 1), LogConfig::default(), lead(1, &[1]));
    rig.host(id(1, 2), LogConfig::default(), follow(2, 1));
    let appends = (0..4).map(|partition| (id(1, partition), records(&["x"]))).collect();
    let gathered = rig.produce(Some(Acks::All), appends);
    rig.flush();
    let answers = now(gathered).expect("answered");
    assert!(answers[0].is_ok() && answers[1].is_ok());
    assert!(matches!(answers[2], Err(ProduceError::NotLeader)));
    assert!(matches!(answers[3], Err(ProduceError::NotHosted)));
}

#[test]
fn waiting_answers_end_with_the_term_the_time_and_the_broker() {
    let (_dir, mut rig) = rig();
    let partition = rig.host(id(1, 0), LogConfig::default(), lead(1, &[1, 2]));
    let too_late = rig.produce(Some(Acks::All), vec![(id(1, 0), records(&["a"]))]);
    rig.flush();
    rig.pass(31_000);
    let answers = now(too_late).expect("answered");
    assert!(matches!(answers[0], Err(ProduceError::Ack(AckError::TimedOut, _))));

    let deposed = rig.produce(Some(Acks::All), vec![(id(1, 0), records(&["b"]))]);
    let (leader, leader_epoch) = (NodeId(2), LeaderEpoch(2));
    rig.tell(Message::Assume(id(1, 0), follow(2, 2)));
    let deposed = now(deposed).expect("answered");
    // The answer still says where the records are.
    assert!(
        matches!(&deposed[0], Err(ProduceError::Ack(AckError::NotLeader, at)) if at.base_offset == Offset(1))
    );
    let leadership = partition.leadership();
    assert_eq!(
        (leadership.role, leadership.leader, leadership.leader_epoch),
        (Role::Follower, leader, leader_epoch)
    );

    rig.tell(Message::Assume(id(1, 0), lead(3, &[1, 2])));
    assert_eq!(partition.leadership().epoch_start, Some(Offset(2)));
    let last = rig.produce(Some(Acks::Leader), vec![(id(1, 0), records(&["c"]))]);
    let never = rig.produce(Some(Acks::All), vec![(id(1, 0), records(&["d"]))]);
    let (done, mut closed) = tokio::sync::oneshot::channel();
    rig.tell(Message::Close(done));
    closed.try_recv().unwrap();
    // Closing flushes, which is all that acks=1 asks for.
    assert_eq!(base_offsets(now(last)), [2]);
    assert!(matches!(now(never).expect("answered")[0], Err(ProduceError::Ack(AckError::NotLeader, _))));
    assert!(rig.shard.is_closed());
    let refused = rig.produce(Some(Acks::All), vec![(id(1, 0), records(&["e"]))]);
    assert!(matches!(now(refused).expect("answered")[0], Err(ProduceError::NotHosted)));
}

#[test]
fn a_failed_directory_takes_its_partitions_offline() {
    let (_dir, mut rig) = rig();
    let partition = rig.host(id(1, 0), LogConfig::default(), lead(1, &[1]));
    let mut consumer = FetchWaiter::new(1);
    consumer.register(&partition.waiters, Bound::HighWatermark);
    let waiting = rig.produce(Some(Acks::All), vec![(id(1, 0), records(&["a"]))]);
    rig.directory.fail("sync a file", &"input/output error");
    rig.directory.fail("sync a file", &"again");
    // The sync that was under way reports nothing.
    rig.flush();
    rig.pump();
    assert!(matches!(now(waiting).expect("answered")[0], Err(ProduceError::Offline)));
    assert_eq!(partition.leadership().role, Role::Offline);
    assert_eq!(partition.view().high_watermark, Offset(0));
    assert!(consumer.enough().now_or_never().is_some());
    let refused = rig.produce(Some(Acks::All), vec![(id(1, 0), records(&["b"]))]);
    assert!(matches!(now(refused).expect("answered")[0], Err(ProduceError::Offline)));
    // A partition that arrives late fares the same.
    let late = rig.host(id(2, 0), LogConfig::default(), lead(1, &[1]));
    assert_eq!(late.leadership().role, Role::Offline);
}

#[test]
fn records_are_deleted_below_the_high_watermark() {
    let (_dir, mut rig) = rig();
    let partition = rig.host(id(1, 0), LogConfig::default(), lead(1, &[ME.0]));
    let compacted = LogConfig { compact: true, delete: false, ..LogConfig::default() };
    rig.host(id(1, 1), compacted, lead(1, &[1]));
    let _ = rig.produce(Some(Acks::All), vec![(id(1, 0), records(&["a", "b", "c"]))]);
    rig.flush();
    let deletes = vec![
        (id(1, 0), Some(Offset(2))),
        (id(1, 0), Some(Offset(4))),
        (id(1, 0), None),
        (id(1, 1), None),
        (id(1, 7), None),
    ];
    let gathered = rig.partitions.delete_records(1000, deletes).now_or_never().unwrap();
    rig.pump();
    let answers = gathered.all().now_or_never().expect("answered");
    let texts: Vec<String> = answers
        .into_iter()
        .map(|answer| answer.map_or_else(|error| error.to_string(), |low| format!("low watermark {low}")))
        .collect();
    expect_test::expect![[r#"
        [
            "low watermark 2",
            "4 is outside of the log, whose high watermark is 3",
            "low watermark 3",
            "cleanup.policy of the topic is compact alone",
            "this broker does not host the partition",
        ]
    "#]]
    .assert_debug_eq(&texts);
    assert_eq!(partition.view().log_start, Offset(3));
}

#[test]
fn a_released_partition_gives_its_log_back() {
    let (_dir, mut rig) = rig();
    let partition = rig.host(id(1, 0), LogConfig::default(), lead(1, &[1]));
    let waiting = rig.produce(Some(Acks::All), vec![(id(1, 0), records(&["a"]))]);
    let (done, mut log) = tokio::sync::oneshot::channel();
    rig.tell(Message::Release(id(1, 0), done));
    assert_eq!(log.try_recv().unwrap().unwrap().log_end(), Offset(1));
    assert!(matches!(now(waiting).expect("answered")[0], Err(ProduceError::Ack(AckError::NotLeader, _))));
    assert_eq!(partition.leadership().role, Role::Follower);
    // The sync that was under way finds nobody.
    rig.flush();
}

#[test]
fn checkpoints_say_what_the_views_say() {
    use crate::storage::checkpoint::{OffsetCheckpoint, read_offsets};
    use std::collections::BTreeMap;

    let (dir, mut rig) = rig();
    rig.host(id(1, 0), LogConfig::default(), lead(1, &[1]));
    rig.host(id(2, 0), LogConfig::default(), lead(1, &[1]));
    let _ = rig.produce(Some(Acks::All), vec![(id(1, 0), records(&["a", "b"]))]);
    rig.flush();
    let _ = rig.produce(Some(Acks::All), vec![(id(1, 0), records(&["c"]))]);
    let deleting = rig.partitions.delete_records(1000, vec![(id(1, 0), Some(Offset(1)))]).now_or_never();
    rig.pump();
    assert!(deleting.unwrap().all().now_or_never().is_some());
    let checkpoints = rig.checkpoints();
    checkpoints.write_all();
    let read = || {
        let mut all = BTreeMap::new();
        for which in OffsetCheckpoint::ALL {
            let offsets = read_offsets(&RealDisk, dir.path(), which).unwrap();
            all.extend(offsets.into_iter().map(|(of, at)| (format!("{} {of}", which.file_name()), at.0)));
        }
        all
    };
    expect_test::expect![[r#"
        {
            "log-start-offset-checkpoint topic1-0": 1,
            "recovery-point-offset-checkpoint topic1-0": 2,
            "recovery-point-offset-checkpoint topic2-0": 0,
            "replication-offset-checkpoint topic1-0": 2,
            "replication-offset-checkpoint topic2-0": 0,
        }
    "#]]
    .assert_debug_eq(&read());
    // Nothing has changed, so nothing is written.
    std::fs::remove_file(dir.path().join(OffsetCheckpoint::Replication.file_name())).unwrap();
    checkpoints.write_all();
    assert!(!dir.path().join(OffsetCheckpoint::Replication.file_name()).exists());
    rig.flush();
    checkpoints.write_all();
    assert_eq!(read()["replication-offset-checkpoint topic1-0"], 3);
}

#[test]
fn threads_acknowledge_what_many_producers_send() {
    use super::directory::Directory;
    use super::flusher::DEFAULT_THREADS;
    use super::mailbox::{mailbox, spawn};
    use super::partitions::Partitions;
    use super::rig::{new_host, open_dir};
    use super::shard::Shard;
    use crate::storage::disk::Disk;
    use crate::storage::log::Origin;

    let dir = tempfile::tempdir().unwrap();
    let (senders, mailboxes): (Vec<_>, Vec<_>) = (0..2).map(|_| mailbox(8)).unzip();
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let log_dir = open_dir(&disk, dir.path());
    let directory = Arc::new(Directory::new(0, log_dir, senders.clone(), DEFAULT_THREADS));
    let partitions = Partitions::new(senders);
    let (outlets, _inlets) = super::outbox::outlets();
    for (index, mailbox) in mailboxes.into_iter().enumerate() {
        spawn(index, Shard::new(index, ME, outlets.clone()), mailbox).unwrap();
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for partition in 0..6 {
            let host = new_host(&directory, id(1, partition), LogConfig::default(), lead(1, &[1]));
            partitions.update(|table| {
                table.insert(host.partition.id, host.partition.clone());
            });
            partitions.shard_of(&host.partition.id).send(Message::Host(Box::new(host))).await;
        }
        let producers = (0..20).map(|producer| {
            let partitions = partitions.clone();
            async move {
                let mut last = -1;
                for _ in 0..10 {
                    let appends = vec![(id(1, producer % 6), records(&["x"]))];
                    let answers = partitions.produce(Some(Acks::All), Origin::Client, 30_000, appends).await;
                    let produced = answers.all().await.pop().unwrap().unwrap();
                    assert!(produced.base_offset.0 > last);
                    last = produced.base_offset.0;
                }
            }
        });
        futures_util::future::join_all(producers).await;
        partitions.close().await;
    });
    let ends: i64 = partitions.all().values().map(|partition| partition.view().high_watermark.0).sum();
    assert_eq!(ends, 200);
    assert!(partitions.all().values().all(|partition| partition.view().flushed == partition.view().log_end));
}

#[test]
fn old_segments_go_a_few_at_a_time_on_leaders_and_followers_and_settings_hold_at_once() {
    let (_dir, mut rig) = rig();
    let small = LogConfig { segment_bytes: 100, retention_ms: 1000, ..LogConfig::default() };
    let partition = rig.host(id(1, 0), small.clone(), lead(1, &[1]));
    for _ in 0..20 {
        let _ = rig.produce(Some(Acks::All), vec![(id(1, 0), records(&["a"]))]);
    }
    rig.flush();
    assert_eq!((partition.view().segment_count(), partition.view().high_watermark), (20, Offset(20)));
    let retain = |rig: &mut Rig| {
        let answer = rig.partitions.retain(id(1, 0));
        rig.pump();
        answer.now_or_never().expect("answered").expect("hosted")
    };
    // They are not due, and then they are.
    let lasting = LogConfig { retention_ms: -1, ..small.clone() };
    let replica = replica_config(&small);
    rig.tell(Message::Configure(id(1, 0), Arc::new(lasting), replica));
    assert!(!retain(&mut rig));
    assert_eq!(partition.view().segment_count(), 20);
    rig.tell(Message::Configure(id(1, 0), Arc::new(small), replica));
    assert_eq!(partition.log_config().retention_ms, 1000);
    assert!(retain(&mut rig));
    assert_eq!((partition.view().segment_count(), partition.view().log_start), (12, Offset(8)));
    // The same on a follower; an active segment that is old makes way for a new one.
    rig.tell(Message::Assume(id(1, 0), follow(2, 2)));
    assert!(retain(&mut rig));
    assert!(!retain(&mut rig));
    assert_eq!((partition.view().segment_count(), partition.view().log_start), (1, Offset(20)));
    assert!(rig.flush() > 0);
    // The files go when their time has come.
    let files = || std::fs::read_dir(_dir.path().join("topic1-0")).unwrap().count();
    let before = files();
    let removed_at = rig.now.monotonic.plus(60_000);
    rig.directory.remove_doomed(removed_at.plus(-1));
    assert_eq!(files(), before);
    rig.directory.remove_doomed(removed_at);
    assert!(files() + 60 <= before, "{} of {before}", files());
}

#[test]
fn expired_producers_are_looked_for_as_often_as_is_set() {
    for check in [500, i64::MAX] {
        let (_dir, mut rig) = rig();
        let config = LogConfig {
            producer_id_expiration_ms: 1000,
            producer_check_interval_ms: check,
            ..LogConfig::default()
        };
        rig.host(id(1, 0), config, lead(1, &[1]));
        let mut builder = BatchBuilder::new().producer(ProducerId(7), ProducerEpoch(0), 0);
        builder.push(rig.now.wall, None, Some(b"a"), &[]);
        let _ = rig.produce(Some(Acks::All), vec![(id(1, 0), builder.build().unwrap())]);
        let known = |rig: &mut Rig| {
            let (reply, answer) = tokio::sync::oneshot::channel();
            rig.tell(Message::Producers(id(1, 0), reply));
            answer.now_or_never().unwrap().unwrap().unwrap().len()
        };
        rig.pass(500);
        assert_eq!(known(&mut rig), 1);
        rig.pass(500);
        assert_eq!(known(&mut rig), usize::from(check > 500));
        // Half a minute passes between two looks at the most.
        rig.pass(29_000);
        assert_eq!(known(&mut rig), 0);
    }
}

/// A batch of an idempotent producer with one record.
fn sent(sequence: i32) -> Bytes {
    let mut builder = BatchBuilder::new().producer(ProducerId(7), ProducerEpoch(0), sequence);
    builder.push(TimestampMs(1000), None, Some(b"a"), &[]);
    builder.build().unwrap()
}

/// A producer that has several batches under way must not be told that they are out of order, nor may a later one be taken first,
/// when this broker begins to lead between two of them, is unfenced again, or the in-sync set is large enough again.
#[test]
fn batches_behind_one_that_was_turned_away_wait_for_it() {
    let produce = |rig: &mut Rig, sequence| {
        let produced = rig.produce(Some(Acks::All), vec![(id(1, 0), sent(sequence))]);
        rig.flush();
        now(produced).expect("answered").remove(0)
    };
    for is_known in [false, true] {
        let (_dir, mut rig) = rig();
        let lease = Lease::expired();
        lease.renew(rig.now.monotonic);
        rig.shard = rig.shard.with_lease(lease.clone());
        rig.host(id(1, 0), LogConfig::default(), lead_of(&[1, 2], 1, &[1]));
        let first = if is_known {
            assert_eq!(produce(&mut rig, 0).expect("appended").base_offset, Offset(0));
            1
        } else {
            0
        };

        rig.tell(Message::Assume(id(1, 0), follow(2, 2)));
        assert!(matches!(produce(&mut rig, first), Err(ProduceError::NotLeader)));
        rig.tell(Message::Assume(id(1, 0), lead_of(&[1, 2], 3, &[1])));
        assert!(matches!(produce(&mut rig, first + 1), Err(ProduceError::NotLeader)));
        assert!(matches!(produce(&mut rig, first + 2), Err(ProduceError::NotLeader)));
        assert!(produce(&mut rig, first).is_ok());
        assert!(produce(&mut rig, first + 1).is_ok());

        let log = Arc::new(LogConfig::default());
        let mut settings = replica_config(&log);
        settings.leader.min_insync_replicas = 2;
        rig.tell(Message::Configure(id(1, 0), log.clone(), settings));
        assert!(matches!(produce(&mut rig, first + 2), Err(ProduceError::NotEnoughReplicas(_))));
        settings.leader.min_insync_replicas = 1;
        rig.tell(Message::Configure(id(1, 0), log, settings));
        assert!(matches!(produce(&mut rig, first + 3), Err(ProduceError::NotEnoughReplicas(_))));
        assert_eq!(produce(&mut rig, first + 2).expect("appended").base_offset.0, i64::from(first) + 2);
        // A batch that is missing for another reason is.
        let refused = produce(&mut rig, first + 4);
        assert!(matches!(refused, Err(ProduceError::Append(AppendError::Producer(_)))), "{refused:?}");
    }
}
