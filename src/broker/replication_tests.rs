//! Tests of leaders and followers in their shards, with their logs and disks: what fetchers and handlers carry between nodes is
//! carried by hand.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt as _;

use super::mailbox::Message;
use super::messages::{
    Fetched, FollowerFetched, IsrAltered, IsrProposal, LeaderAnswer, ProduceError, Produced, RoleSpec,
};
use super::partitions::{Partition, Role};
use super::reply::Gathered;
use super::rig::{Rig, follow, id, lead, leave_free, records};
use super::serving::{NotServed, ReadFrom, ReadRefused, fetched, led_view, read};
use super::waiters::Bound;
use crate::replica::{
    Acks, AlterOutcome, Bounds, EpochEnd, FetchFrom, FollowerFetch, Refusal, Registration, Wants,
};
use crate::storage::disk::Disk;
use crate::storage::log::LogConfig;
use crate::storage::sim_disk::{FaultOn, SimDisk};
use crate::types::{BrokerEpoch, LeaderEpoch, NodeId, Offset, PartitionEpoch, TopicIdPartition};

pub(super) const P: TopicIdPartition = id(1, 0);

pub(super) struct Node {
    pub(super) id: NodeId,
    pub(super) rig: Rig,
    pub(super) disk: SimDisk,
    pub(super) partition: Arc<Partition>,
    /// What the follower here last said that it wants, by leader.
    pub(super) wants: BTreeMap<NodeId, Wants>,
    routes: Vec<super::outbox::LeaderInlet>,
    pub(super) proposals: Vec<IsrProposal>,
}

impl Node {
    fn new(node: i32, config: LogConfig, role: RoleSpec) -> Node {
        let (id, disk) = (NodeId(node), SimDisk::new());
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let mut rig = Rig::on_node(id, shared, Path::new("/data"));
        let partition = rig.host(P, config, role);
        let (wants, routes, proposals) = Default::default();
        Node { id, rig, disk, partition, wants, routes, proposals }
    }

    /// Starts again on what its disk has.
    pub(super) fn again(self, config: LogConfig, role: RoleSpec) -> Node {
        let (id, disk) = (self.id, self.disk.clone());
        drop(self);
        disk.kill();
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let mut rig = Rig::on_node(id, shared, Path::new("/data"));
        let partition = rig.host_again(P, config, role);
        let (wants, routes, proposals) = Default::default();
        let mut node = Node { id, rig, disk, partition, wants, routes, proposals };
        node.hear();
        node
    }

    pub(super) fn assume(&mut self, role: RoleSpec) {
        self.rig.tell(Message::Assume(P, role));
        self.hear();
    }

    /// Takes in what the shard has told.
    pub(super) fn hear(&mut self) {
        while let Ok(route) = self.rig.inlets.leaders.try_recv() {
            self.routes.push(route);
        }
        for route in &mut self.routes {
            while let Ok(batch) = route.wants.try_recv() {
                for news in batch {
                    match news.wants {
                        Some(wants) => self.wants.insert(route.leader, wants),
                        None => self.wants.remove(&route.leader),
                    };
                }
            }
        }
        while let Ok(proposals) = self.rig.inlets.proposals.try_recv() {
            self.proposals.extend(proposals);
        }
    }

    pub(super) fn ends(&self) -> (i64, i64, i64, i64) {
        let view = self.partition.view();
        (view.log_start.0, view.high_watermark.0, view.flushed.0, view.log_end.0)
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let view = self.partition.view();
        let from = ReadFrom { offset: view.log_start, last_fetched_epoch: LeaderEpoch::UNKNOWN };
        let records = read(&view, from, Bound::LogEnd, usize::MAX >> 1, true).unwrap();
        records.pieces.concat()
    }
}

/// Serves the follower's question as the leader's handler does, without carrying the answer back.
fn serve(follower: &Node, leader: &mut Node, wants: &Wants) -> LeaderAnswer {
    match *wants {
        Wants::Fetch(asked) => serve_fetch(follower, leader, asked),
        Wants::Bounds(asked) => {
            let bounds = led_view(&leader.partition, asked.current_leader_epoch)
                .map(|(_, view)| Bounds { log_start: view.log_start, log_end: view.log_end })
                .map_err(|_| Refusal::NotLeader);
            LeaderAnswer::Bounds { asked, bounds }
        }
        Wants::Nothing { .. } => panic!("the follower asks for nothing"),
    }
}

fn serve_fetch(follower: &Node, leader: &mut Node, asked: FetchFrom) -> LeaderAnswer {
    let refused = |refusal| LeaderAnswer::Refused { asked, refusal };
    let (leadership, view) = match led_view(&leader.partition, asked.current_leader_epoch) {
        Ok(led) => led,
        Err(NotServed::FencedLeaderEpoch) => return refused(Refusal::FencedLeaderEpoch),
        Err(NotServed::UnknownLeaderEpoch) => return refused(Refusal::UnknownLeaderEpoch),
        Err(_) => return refused(Refusal::NotLeader),
    };
    let last_fetched_epoch = asked.last_fetched_epoch.unwrap_or(LeaderEpoch::UNKNOWN);
    let from = ReadFrom { offset: asked.offset, last_fetched_epoch };
    let records = match read(&view, from, Bound::LogEnd, 1 << 20, true) {
        Ok(records) => records,
        Err(ReadRefused::OutOfRange) => return refused(Refusal::OffsetOutOfRange),
        Err(ReadRefused::Io(error)) => panic!("{error}"),
    };
    let fetch = FollowerFetch {
        follower: follower.id,
        broker_epoch: BrokerEpoch(1),
        fetch_offset: asked.offset,
        flushed_offset: Some(asked.flushed),
        log_start: asked.log_start,
    };
    if let Some(fetched) = fetched(&leader.partition, &leadership, &records, fetch) {
        leader.rig.tell(Message::FollowerFetched(vec![fetched]));
        leader.hear();
    }
    match records.diverging {
        Some(theirs) => LeaderAnswer::Diverges { asked, theirs },
        None => LeaderAnswer::Records {
            asked,
            records: records.pieces.concat().into(),
            high_watermark: view.high_watermark,
            log_start: view.log_start,
            counts_flushed: leader.partition.counts_flushed(),
        },
    }
}

fn answer(follower: &mut Node, answer: LeaderAnswer) {
    follower.rig.tell(Message::Fetched(vec![Fetched { id: P, answer }]));
    follower.hear();
}

/// The follower asks what it wants, and hears the answer. False when it wants nothing of this leader.
pub(super) fn exchange(follower: &mut Node, leader: &mut Node) -> bool {
    follower.hear();
    let Some(wants) = follower.wants.get(&leader.id).copied() else { return false };
    if matches!(wants, Wants::Nothing { .. }) {
        return false;
    }
    let said = serve(follower, leader, &wants);
    answer(follower, said);
    true
}

/// Exchanges and syncs until nothing changes.
pub(super) fn settle(follower: &mut Node, leader: &mut Node) {
    for _ in 0..20 {
        follower.rig.flush();
        leader.rig.flush();
        exchange(follower, leader);
    }
}

pub(super) fn produce(
    node: &mut Node,
    acks: Acks,
    values: &[&str],
) -> Gathered<Result<Produced, ProduceError>> {
    node.rig.produce(Some(acks), vec![(P, records(values))])
}

/// A leader, node 1, and a follower, node 2, in epoch 1.
pub(super) fn pair(config: LogConfig) -> (Node, Node) {
    let leader = Node::new(1, config.clone(), lead(1, &[1, 2]));
    let follower = Node::new(2, config, follow(1, 1));
    (leader, follower)
}

#[test]
fn acknowledged_is_what_the_follower_has_flushed() {
    let (mut leader, mut follower) = pair(LogConfig::default());
    let gathered = produce(&mut leader, Acks::All, &["a", "b"]);
    leader.rig.flush();
    let mut answers = std::pin::pin!(gathered.all());
    assert!(exchange(&mut follower, &mut leader));
    assert_eq!((leader.ends(), follower.ends()), ((0, 0, 2, 2), (0, 0, 0, 2)));
    // The next question goes out before the disk is done, and says so.
    assert!(exchange(&mut follower, &mut leader));
    assert!(answers.as_mut().now_or_never().is_none());
    follower.rig.flush();
    assert!(exchange(&mut follower, &mut leader));
    assert_eq!(answers.now_or_never().unwrap().pop().unwrap().unwrap().base_offset, Offset(0));
    assert_eq!((leader.ends(), follower.ends()), ((0, 2, 2, 2), (0, 0, 2, 2)));
    assert!(exchange(&mut follower, &mut leader));
    assert_eq!(follower.ends(), (0, 2, 2, 2));
    assert_eq!(follower.bytes(), leader.bytes());
}

/// The leader says whether it waits for disks, since `flush.before.ack` may differ between brokers.
#[test]
fn a_follower_flushes_while_its_leader_waits_for_that_and_only_then() {
    let lazy = LogConfig { flush_before_ack: false, flush_ms: i64::MAX, ..LogConfig::default() };
    let mut leader = Node::new(1, LogConfig::default(), lead(1, &[1, 2]));
    let mut follower = Node::new(2, lazy.clone(), follow(1, 1));
    let answered = produce(&mut leader, Acks::All, &["a", "b"]);
    settle(&mut follower, &mut leader);
    assert!(answered.all().now_or_never().is_some());
    assert_eq!((leader.ends(), follower.ends()), ((0, 2, 2, 2), (0, 2, 2, 2)));

    // A leader that does not wait spares the follower's disk.
    let mut lazy_leader = Node::new(1, lazy.clone(), lead(1, &[1, 2]));
    let mut follower = Node::new(2, lazy, follow(1, 1));
    let answered = produce(&mut lazy_leader, Acks::All, &["a", "b"]);
    lazy_leader.rig.flush();
    for _ in 0..3 {
        assert!(exchange(&mut follower, &mut lazy_leader));
        follower.rig.flush();
    }
    assert!(answered.all().now_or_never().is_some());
    assert_eq!(follower.ends(), (0, 2, 0, 2));
    // It begins to wait, and there is nothing new to append.
    let waiting = Message::Configure(
        P,
        Arc::new(LogConfig::default()),
        super::rig::replica_config(&LogConfig::default()),
    );
    lazy_leader.rig.tell(waiting);
    settle(&mut follower, &mut lazy_leader);
    assert_eq!(follower.ends(), (0, 2, 2, 2));
}

#[test]
fn leadership_moves_and_comes_back_and_the_logs_become_equal() {
    let (mut one, mut two) = pair(LogConfig::default());
    let _ = produce(&mut one, Acks::All, &["a", "b"]);
    settle(&mut two, &mut one);
    // Node 1 appends what nobody else has, and loses the leadership.
    let lost = produce(&mut one, Acks::Leader, &["lost", "too"]);
    one.rig.flush();
    assert!(lost.all().now_or_never().unwrap()[0].is_ok());
    two.assume(lead(2, &[1, 2]));
    let _ = produce(&mut two, Acks::All, &["c"]);
    one.assume(follow(2, 2));
    assert_eq!((one.partition.leadership().role, one.ends()), (Role::Follower, (0, 2, 4, 4)));
    settle(&mut one, &mut two);
    assert_eq!((one.ends(), two.ends()), ((0, 3, 3, 3), (0, 3, 3, 3)));
    assert_eq!(one.bytes(), two.bytes());
    // And back.
    two.hear();
    two.assume(follow(1, 3));
    one.assume(lead(3, &[1, 2]));
    assert!(one.wants.is_empty(), "a leader fetches from nobody");
    let _ = produce(&mut one, Acks::All, &["d"]);
    settle(&mut two, &mut one);
    assert_eq!((one.ends(), two.ends()), ((0, 4, 4, 4), (0, 4, 4, 4)));
    assert_eq!(one.bytes(), two.bytes());
    let epochs = |node: &Node| node.partition.view().epochs().entries().to_vec();
    assert_eq!(epochs(&one), epochs(&two));
}

#[test]
fn what_a_fetch_says_counts_only_in_the_term_in_which_it_was_served() {
    let (mut one, mut two) = pair(LogConfig::default());
    let _ = produce(&mut one, Acks::All, &["a"]);
    settle(&mut two, &mut one);
    let fetch = FollowerFetch {
        follower: two.id,
        broker_epoch: BrokerEpoch(1),
        fetch_offset: Offset(3),
        flushed_offset: None,
        log_start: Offset::ZERO,
    };
    one.assume(lead(2, &[1, 2]));
    let _ = produce(&mut one, Acks::All, &["b", "c"]);
    one.rig.flush();
    let late = FollowerFetched { id: P, leader_epoch: LeaderEpoch(1), fetch };
    one.rig.tell(Message::FollowerFetched(vec![late]));
    assert_eq!(one.ends(), (0, 1, 3, 3));
    one.rig.tell(Message::FollowerFetched(vec![FollowerFetched { leader_epoch: LeaderEpoch(2), ..late }]));
    assert_eq!(one.ends(), (0, 3, 3, 3));
}

#[test]
fn an_answer_that_was_asked_for_before_a_cut_changes_nothing() {
    let (mut one, mut two) = pair(LogConfig::default());
    let _ = produce(&mut one, Acks::Leader, &["a"]);
    two.hear();
    let asked = two.wants[&one.id];
    let late = serve(&two, &mut one, &asked);
    two.assume(follow(1, 2));
    answer(&mut two, late);
    assert_eq!(two.ends(), (0, 0, 0, 0));
}

#[test]
fn a_log_beyond_its_leaders_is_cut_where_that_may_be_and_kept_where_not() {
    for lossy in [false, true] {
        let config = LogConfig { flush_before_ack: !lossy, ..LogConfig::default() };
        let (mut one, mut two) = pair(config.clone());
        let _ = produce(&mut one, Acks::All, &["a", "b"]);
        settle(&mut two, &mut one);
        assert_eq!(two.ends().1, 2);
        // A leader that has lost everything, as after an unclean election.
        let mut three = Node::new(3, config, lead(2, &[3, 2]));
        two.assume(follow(3, 2));
        for _ in 0..10 {
            two.rig.pass(2000);
            settle(&mut two, &mut three);
        }
        let kept = if lossy { 0 } else { 2 };
        assert_eq!(two.partition.view().log_end, Offset(kept), "lossy: {lossy}");
        if !lossy {
            assert_eq!(two.wants[&three.id], Wants::Nothing { until: None });
            // The operator gives them up.
            let recovering = match follow(3, 2) {
                RoleSpec::Follow(term) => {
                    RoleSpec::Follow(crate::replica::Term { may_lack_committed: true, ..term })
                }
                other => other,
            };
            two.assume(recovering);
        }
        let _ = produce(&mut three, Acks::All, &["x"]);
        for _ in 0..10 {
            two.rig.pass(2000);
            settle(&mut two, &mut three);
        }
        assert_eq!(two.bytes(), three.bytes());
    }
}

#[test]
fn a_follower_behind_the_log_start_starts_over_there_also_within_a_batch() {
    for upto in [2, 3] {
        let (mut one, mut two) = pair(LogConfig::default());
        one.assume(lead(2, &[1]));
        for values in [&["a", "b"][..], &["c", "d"], &["e"]] {
            let _ = produce(&mut one, Acks::All, values);
        }
        one.rig.flush();
        let deleting = one.rig.partitions.delete_records(1000, vec![(P, Some(Offset(upto)))]);
        let _ = deleting.now_or_never().unwrap();
        one.rig.pump();
        two.assume(follow(1, 2));
        for _ in 0..10 {
            two.rig.pass(100);
            settle(&mut two, &mut one);
        }
        assert_eq!((one.ends(), two.ends()), ((upto, 5, 5, 5), (upto, 5, 5, 5)));
        assert_eq!(one.bytes(), two.bytes());
        assert_eq!(one.partition.view().epochs(), two.partition.view().epochs());
    }
}

#[test]
fn a_full_disk_leaves_a_follower_that_starts_within_a_batch_where_it_was() {
    let (mut one, mut two) = pair(LogConfig::default());
    one.assume(lead(2, &[1]));
    let _ = produce(&mut one, Acks::All, &["a", "b", "c"]);
    one.rig.flush();
    let deleting = one.rig.partitions.delete_records(1000, vec![(P, Some(Offset(1)))]);
    let _ = deleting.now_or_never().unwrap();
    one.rig.pump();
    two.assume(follow(1, 2));
    while two.ends().0 == 0 {
        exchange(&mut two, &mut one);
    }
    two.rig.flush();
    two.disk.set_capacity(Some(two.disk.used()));
    exchange(&mut two, &mut one);
    assert_eq!(two.ends(), (1, 1, 1, 1));
    assert!(matches!(two.wants[&one.id], Wants::Nothing { until: Some(_) }));
    two.disk.set_capacity(None);
    two.rig.pass(2000);
    settle(&mut two, &mut one);
    assert_eq!((two.ends(), two.bytes()), ((1, 3, 3, 3), one.bytes()));
}

#[test]
fn the_log_start_follows_and_old_segments_go() {
    let config = LogConfig { segment_bytes: 150, ..LogConfig::default() };
    let (mut one, mut two) = pair(config);
    for _ in 0..6 {
        let _ = produce(&mut one, Acks::All, &["a", "b"]);
    }
    settle(&mut two, &mut one);
    let segments = two.partition.view().segment_count();
    assert!(segments > 2, "what came at once went into several segments");
    let deleting = one.rig.partitions.delete_records(1000, vec![(P, Some(Offset(10)))]).now_or_never();
    let gathered = deleting.unwrap();
    one.rig.pump();
    let mut answers = std::pin::pin!(gathered.all());
    assert!(answers.as_mut().now_or_never().is_none(), "the follower still has them");
    settle(&mut two, &mut one);
    assert_eq!(answers.now_or_never().unwrap().pop().unwrap().unwrap(), Offset(10));
    assert_eq!(two.ends(), (10, 12, 12, 12));
    assert!(two.partition.view().segment_count() < segments);
}

#[test]
fn a_full_disk_pauses_a_follower_and_it_goes_on() {
    let (mut one, mut two) = pair(LogConfig::default());
    let _ = produce(&mut one, Acks::All, &["a"]);
    settle(&mut two, &mut one);
    two.disk.set_capacity(Some(two.disk.used()));
    let _ = produce(&mut one, Acks::All, &["b", "c"]);
    settle(&mut two, &mut one);
    assert_eq!(two.ends(), (0, 1, 1, 1));
    assert!(matches!(two.wants[&one.id], Wants::Nothing { until: Some(_) }));
    assert!(two.rig.shard.next_deadline().is_some(), "it looks again");
    two.disk.set_capacity(None);
    two.rig.pass(2000);
    settle(&mut two, &mut one);
    assert_eq!(two.bytes(), one.bytes());
}

#[test]
fn a_failed_directory_ends_the_fetching() {
    let (mut one, mut two) = pair(LogConfig::default());
    let _ = produce(&mut one, Acks::All, &["a"]);
    two.disk.fail(FaultOn::Write, ".log", 0, ErrorKind::Other, None);
    exchange(&mut two, &mut one);
    two.rig.pump();
    two.hear();
    assert_eq!(two.partition.leadership().role, Role::Offline);
    assert!(!two.rig.directory.is_online());
    assert!(two.wants.is_empty());
    // What is under way comes too late for anybody.
    let asked = FetchFrom {
        offset: Offset(0),
        last_fetched_epoch: None,
        log_start: Offset(0),
        current_leader_epoch: LeaderEpoch(1),
        flushed: Offset(0),
        high_watermark: Offset(0),
        cuts: 1,
    };
    answer(&mut two, LeaderAnswer::Refused { asked, refusal: Refusal::Other });
    assert!(two.wants.is_empty());
}

#[test]
fn damaged_records_are_asked_for_again() {
    let (mut one, mut two) = pair(LogConfig::default());
    let _ = produce(&mut one, Acks::All, &["a", "b"]);
    two.hear();
    let asked = two.wants[&one.id];
    let LeaderAnswer::Records { asked, records, high_watermark, log_start, counts_flushed } =
        serve(&two, &mut one, &asked)
    else {
        panic!("no records");
    };
    for broken in [70, 20] {
        let mut damaged = records.to_vec();
        damaged[broken] ^= 1;
        let records = Bytes::from(damaged);
        answer(&mut two, LeaderAnswer::Records { asked, records, high_watermark, log_start, counts_flushed });
        assert_eq!(two.ends(), (0, 0, 0, 0));
        two.rig.pass(2000);
    }
    settle(&mut two, &mut one);
    assert_eq!(two.bytes(), one.bytes());
}

#[test]
fn a_follower_that_catches_up_joins_the_in_sync_set() {
    let alive = |node| (NodeId(node), crate::replica::BrokerStanding::Active(BrokerEpoch(1)));
    let registration = Registration {
        leader_epoch: LeaderEpoch(1),
        partition_epoch: PartitionEpoch(4),
        replicas: vec![alive(1), alive(2)],
        isr: vec![NodeId(1)],
    };
    let mut one = Node::new(1, LogConfig::default(), RoleSpec::Lead(registration));
    let mut two = Node::new(2, LogConfig::default(), follow(1, 1));
    let answered = produce(&mut one, Acks::All, &["a"]);
    one.rig.flush();
    assert!(answered.all().now_or_never().is_some());
    assert!(one.partition.watches_followers());
    settle(&mut two, &mut one);
    let proposal = one.proposals.pop().unwrap();
    assert_eq!(proposal.alter.isr, [(NodeId(1), BrokerEpoch(1)), (NodeId(2), BrokerEpoch(1))]);
    let outcome = AlterOutcome::Applied {
        leader_epoch: LeaderEpoch(1),
        partition_epoch: PartitionEpoch(5),
        isr: vec![NodeId(1), NodeId(2)],
    };
    let altered = IsrAltered { id: P, proposed_at: proposal.alter.partition_epoch, outcome };
    one.rig.tell(Message::IsrAltered(vec![altered]));
    assert!(!one.partition.watches_followers());
    // Now it counts.
    let waits = produce(&mut one, Acks::All, &["b"]);
    one.rig.flush();
    assert!(waits.all().now_or_never().is_none());
    // It lags for too long and is to leave.
    one.rig.pass(30_001);
    one.hear();
    assert_eq!(one.proposals.pop().unwrap().alter.isr, [(NodeId(1), BrokerEpoch(1))]);
}

#[test]
fn the_fetcher_of_a_former_leader_hears_that_it_is_over() {
    let (_, mut two) = pair(LogConfig::default());
    two.hear();
    assert_eq!(two.wants.keys().copied().collect::<Vec<_>>(), [NodeId(1)]);
    two.assume(follow(3, 2));
    assert_eq!(two.wants.keys().copied().collect::<Vec<_>>(), [NodeId(3)]);
    two.assume(follow(NodeId::NONE.0, 3));
    assert!(two.wants.is_empty());
    two.assume(follow(3, 4));
    assert_eq!(two.wants.len(), 1);
    let (done, _log) = tokio::sync::oneshot::channel();
    two.rig.tell(Message::Release(P, done));
    two.hear();
    assert!(two.wants.is_empty());
}

#[test]
fn a_leader_that_knows_no_epoch_so_old_names_the_end_of_the_log_before() {
    // Node 2 has records of epoch 1 that node 1, leading in epoch 2 from an empty log, does not know.
    let mut two = Node::new(2, LogConfig::default(), lead(1, &[2]));
    let _ = produce(&mut two, Acks::Leader, &["a"]);
    let mut one = Node::new(1, LogConfig::default(), lead(2, &[1, 2]));
    two.assume(follow(1, 2));
    let asked = two.wants[&one.id];
    match serve(&two, &mut one, &asked) {
        LeaderAnswer::Diverges { theirs, .. } => {
            assert_eq!(theirs, EpochEnd { epoch: LeaderEpoch(1), end: Offset(0) });
        }
        other => panic!("{other:?}"),
    }
    settle(&mut two, &mut one);
    assert_eq!(two.ends(), (0, 0, 0, 0));
}

#[test]
fn a_follower_without_room_waits_calmly_hears_of_deletions_and_goes_on_by_itself() {
    const RESERVE: u64 = 50_000;
    let (mut leader, mut follower) = pair(LogConfig::default());
    let _ = produce(&mut leader, Acks::All, &["a", "b"]);
    settle(&mut follower, &mut leader);
    follower.rig.directory.keep_free(RESERVE);
    leave_free(&follower.disk, RESERVE - 1);
    // Without records there is nothing to find room for.
    for _ in 0..3 {
        assert!(exchange(&mut follower, &mut leader));
    }
    let _ = produce(&mut leader, Acks::Leader, &["c"]);
    leader.rig.flush();
    let mut exchanges = 0;
    for _ in 0..60 {
        exchanges += usize::from(exchange(&mut follower, &mut leader));
        follower.rig.pass(500);
    }
    assert!((2..=4).contains(&exchanges), "{exchanges} in half a minute");
    assert_eq!(follower.ends(), (0, 2, 2, 2));
    // What is deleted at the leader is what can make room here.
    let deleting = leader.rig.partitions.delete_records(1000, vec![(P, Some(Offset(2)))]).now_or_never();
    assert!(deleting.is_some());
    leader.rig.pump();
    for _ in 0..121 {
        exchange(&mut follower, &mut leader);
        follower.rig.pass(500);
    }
    assert_eq!(follower.ends(), (2, 2, 2, 2));
    leave_free(&follower.disk, 2 * RESERVE);
    follower.rig.directory.measure(0, follower.rig.now.monotonic);
    follower.rig.pass(500);
    assert!(exchange(&mut follower, &mut leader), "it does not wait for the end of its pause");
    assert_eq!(follower.ends().3, 3);
}

/// What a wire or a memory has damaged on the way is not appended, and comes whole the next time.
#[test]
fn damaged_records_of_a_leader_are_not_appended_and_are_fetched_again() {
    let (mut leader, mut follower) = pair(LogConfig::default());
    let _ = produce(&mut leader, Acks::All, &["a", "b"]);
    settle(&mut follower, &mut leader);
    let _ = produce(&mut leader, Acks::All, &["c", "d"]);
    leader.rig.flush();
    let len = serve_records(&follower, &mut leader).1.len();
    // Each byte of the batch: what it announces is damaged, or what it holds.
    for at in 0..len {
        let (asked, records, high_watermark) = serve_records(&follower, &mut leader);
        let mut damaged = records.to_vec();
        damaged[at] ^= 0x10;
        // Outside of what the checksum covers are the base offset, the length, the leader epoch and the magic.
        let is_covered = at >= 17;
        let said = LeaderAnswer::Records {
            asked,
            records: damaged.into(),
            high_watermark,
            log_start: Offset(0),
            counts_flushed: true,
        };
        if !is_covered {
            continue;
        }
        answer(&mut follower, said);
        assert_eq!(follower.partition.view().log_end, Offset(2), "byte {at}");
        follower.rig.pass(1_000);
        follower.hear();
    }
    settle(&mut follower, &mut leader);
    assert_eq!(follower.ends(), (0, 4, 4, 4));
    assert_eq!(follower.bytes(), leader.bytes());
}

fn serve_records(follower: &Node, leader: &mut Node) -> (FetchFrom, Bytes, Offset) {
    let wants = follower.wants[&leader.id];
    match serve(follower, leader, &wants) {
        LeaderAnswer::Records { asked, records, high_watermark, .. } => (asked, records, high_watermark),
        other => panic!("{other:?}"),
    }
}
