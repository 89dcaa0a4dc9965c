//! The active controller over a quorum of one: brokers register, live, crash and leave, with sockets for what is dialled.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::net::TcpListener;

use super::{ActiveController, DutyError, DutySettings, Office};
use crate::controller::tests::{real, run_node};
use crate::controller::{Controller, MetadataHandle};
use crate::metadata::brokers::{
    BrokerEpochError, BrokerRegistration, Endpoint, Heartbeat, RegisterBrokerError, Registration,
};
use crate::metadata::election::ElectionDefaults;
use crate::metadata::features::supported_features;
use crate::metadata::liveness::{Cause, Liveness, LivenessConfig, ProbeOutcome, Verdict};
use crate::metadata::{Decision, Image, Record};
use crate::types::{BrokerEpoch, MonotonicMs, NodeId, Offset, PartitionIndex, Uuid};
use crate::wire::messages::StrBytes;
use crate::wire::messages::metadata::{PartitionRecord, TopicRecord};

/// The only term that a quorum of one has here: each time in office is another one all the same, for what was known is forgotten.
const TERM: u64 = 1;

struct Rig {
    _dir: tempfile::TempDir,
    metadata: MetadataHandle,
    member: Controller,
    office: tokio::sync::watch::Sender<Option<u64>>,
    active: ActiveController,
    /// While the next decision is made another controller is elected, of which nobody here takes note yet.
    is_overtaken: Arc<AtomicBool>,
    /// That has happened.
    is_deposed: Arc<AtomicBool>,
}

impl Rig {
    async fn start() -> Rig {
        Rig::balancing(None).await
    }

    async fn balancing(rebalance_interval: Option<Duration>) -> Rig {
        let (dir, disk) = real();
        let (metadata, member) = run_node(&disk, dir.path()).await;
        let (office, noted) = tokio::sync::watch::channel(Some(TERM));
        let (is_overtaken, is_deposed): (Arc<AtomicBool>, Arc<AtomicBool>) = Default::default();
        let deposed = Arc::clone(&is_deposed);
        let watched = Office::new(noted, move |_| !deposed.load(Ordering::Relaxed));
        let (overtakes, deposes) = (Arc::clone(&is_overtaken), Arc::clone(&is_deposed));
        let settings = move |_: &Image| {
            if overtakes.swap(false, Ordering::Relaxed) {
                deposes.store(true, Ordering::Relaxed);
            }
            DutySettings {
                defaults: ElectionDefaults::default(),
                // Longer than any test.
                session_ms: 3_600_000,
                listener: "PLAINTEXT".into(),
                rebalance_interval,
                unclean_interval: Duration::from_secs(3600),
            }
        };
        let (active, task) = ActiveController::new(metadata.clone(), watched, None, Arc::new(settings));
        tokio::spawn(task);
        Rig { _dir: dir, metadata, member, office, active, is_overtaken, is_deposed }
    }

    /// Registers and unfences.
    async fn join(&self, id: i32, port: u16) -> BrokerEpoch {
        let epoch = self.active.register_broker(registration(id, 1, port)).await.unwrap();
        let reply = self.active.heartbeat(heartbeat(id, epoch), Vec::new()).await.unwrap();
        assert!(!reply.fenced);
        epoch
    }

    async fn broker_that(
        &self,
        id: i32,
        holds: impl Fn(&BrokerRegistration) -> bool + Send,
    ) -> BrokerRegistration {
        let mut images = self.metadata.subscribe();
        let image = images.wait_for(|image| image.brokers.get(NodeId(id)).is_some_and(&holds)).await.unwrap();
        image.brokers.get(NodeId(id)).unwrap().clone()
    }
}

fn registration(id: i32, incarnation: u128, port: u16) -> Registration {
    let named = supported_features().into_iter();
    let features: BTreeMap<Arc<str>, (i16, i16)> =
        named.map(|(name, min, max)| (Arc::from(name), (min, max))).collect();
    let (listener, host) = ("PLAINTEXT".into(), "127.0.0.1".into());
    Registration {
        id: NodeId(id),
        incarnation: Uuid::from_u128(incarnation),
        endpoints: vec![Endpoint { listener, host, port, security_protocol: 0 }],
        features,
        rack: None,
        directories: vec![Uuid::from_u128(1000 + u128::from(id.unsigned_abs()))],
        previous_epoch: BrokerEpoch::UNKNOWN,
    }
}

fn heartbeat(id: i32, epoch: BrokerEpoch) -> Heartbeat {
    Heartbeat {
        id: NodeId(id),
        epoch,
        metadata_offset: Offset(1_000),
        want_fence: false,
        want_shutdown: false,
        offline_directories: Vec::new(),
        cordoned_directories: None,
    }
}

/// A port on which nobody listens.
async fn dead_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).await.unwrap().local_addr().unwrap().port()
}

#[tokio::test]
async fn a_crashed_broker_is_fenced_as_soon_as_its_connection_breaks() {
    let rig = Rig::start().await;
    let epoch = rig.join(2, dead_port().await).await;
    let presence = rig.active.presence(NodeId(2), epoch).unwrap();
    assert!(presence.is_of(NodeId(2), epoch) && !presence.is_of(NodeId(3), epoch));
    drop(presence);
    let fenced = rig.broker_that(2, |broker| broker.fenced).await;
    assert_eq!(fenced.epoch, epoch);
    // A living one comes back by its next heartbeat.
    let reply = rig.active.heartbeat(heartbeat(2, epoch), Vec::new()).await.unwrap();
    assert!(!reply.fenced);
    rig.member.shutdown().await;
}

#[tokio::test]
async fn a_second_process_is_refused_while_the_first_one_lives() {
    let rig = Rig::start().await;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let epoch = rig.join(2, port).await;
    let presence = rig.active.presence(NodeId(2), epoch).unwrap();
    let other = rig.active.register_broker(registration(2, 7, port)).await;
    assert_eq!(other, Err(DutyError::Refused(RegisterBrokerError::DuplicateRegistration(NodeId(2)))));
    // The same process may ask again, and keeps its epoch.
    assert_eq!(rig.active.register_broker(registration(2, 1, port)).await, Ok(epoch));
    // A restarted one has the port already when the controller dials it; the old one's connection is gone.
    drop(presence);
    let newer = rig.active.register_broker(registration(2, 7, port)).await.unwrap();
    assert!(newer > epoch);
    let stale = rig.active.heartbeat(heartbeat(2, epoch), Vec::new()).await;
    let expected = BrokerEpochError::Stale { broker: NodeId(2), given: epoch, current: newer };
    assert_eq!(stale, Err(DutyError::Refused(expected)));
    rig.member.shutdown().await;
}

#[tokio::test]
async fn a_node_that_does_not_lead_does_nothing() {
    let rig = Rig::start().await;
    let epoch = rig.join(2, dead_port().await).await;
    let presence = rig.active.presence(NodeId(2), epoch).unwrap();
    rig.office.send_replace(None);
    assert!(!rig.active.is_active());
    drop(presence);
    assert_eq!(rig.active.register_broker(registration(3, 1, 1)).await, Err(DutyError::NotController));
    assert_eq!(rig.active.heartbeat(heartbeat(2, epoch), Vec::new()).await, Err(DutyError::NotController));
    assert_eq!(
        rig.active.alter_partitions(NodeId(2), epoch, Vec::new()).await,
        Err(DutyError::NotController)
    );
    assert_eq!(rig.active.unregister(NodeId(2)).await, Err(DutyError::NotController));
    assert!(rig.active.presence(NodeId(2), epoch).is_none());
    assert!(!rig.metadata.image().brokers.get(NodeId(2)).unwrap().fenced);
    // The next term begins with a dial to whom it has not heard.
    rig.office.send_replace(Some(TERM));
    rig.broker_that(2, |broker| broker.fenced).await;
    rig.member.shutdown().await;
}

#[tokio::test]
async fn a_heartbeat_counts_in_the_term_in_which_it_came() {
    let rig = Rig::start().await;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let epoch = rig.join(2, listener.local_addr().unwrap().port()).await;
    // Whoever leads next does not know of the lease that an answer would renew.
    rig.is_overtaken.store(true, Ordering::Relaxed);
    assert_eq!(rig.active.heartbeat(heartbeat(2, epoch), Vec::new()).await, Err(DutyError::NotController));
    assert!(rig.is_deposed.load(Ordering::Relaxed));
    rig.office.send_replace(Some(TERM));
    rig.is_deposed.store(false, Ordering::Relaxed);
    assert!(rig.active.heartbeat(heartbeat(2, epoch), Vec::new()).await.is_ok());
    rig.member.shutdown().await;
}

/// A broker refuses both dials.
fn condemn(liveness: &mut Liveness, id: NodeId, epoch: BrokerEpoch, now: MonotonicMs) -> Vec<Verdict> {
    liveness.disconnected(id, epoch, now);
    for dial in 0..2 {
        let at = now.plus(dial * 30);
        liveness.tick(at);
        liveness.probed(id, epoch, ProbeOutcome::Refused, at);
    }
    liveness.tick(now.plus(60))
}

#[tokio::test]
async fn nobody_is_fenced_who_was_heard_after_the_verdict() {
    let rig = Rig::start().await;
    let port = dead_port().await;
    for (id, is_heard) in [(2, true), (3, false)] {
        let epoch = rig.join(id, port).await;
        let id = NodeId(id);
        let verdicts = rig.active.inner.with_liveness(|liveness, now| {
            let verdicts = condemn(liveness, id, epoch, now);
            if is_heard {
                liveness.heard(id, epoch, Offset(1_000), now);
            }
            verdicts
        });
        let verdict = verdicts.into_iter().flatten().find(|verdict| matches!(verdict, Verdict::Fence(..)));
        assert_eq!(verdict, Some(Verdict::Fence(id, epoch, Cause::Refuses)));
        super::watch::fence(Arc::clone(&rig.active.inner), id, epoch, Cause::Refuses).await;
        assert_eq!(rig.metadata.image().brokers.get(id).unwrap().fenced, !is_heard);
    }
    rig.member.shutdown().await;
}

#[tokio::test]
async fn a_broker_leaves_when_all_others_know() {
    let rig = Rig::start().await;
    let (first, second) = (TcpListener::bind(("127.0.0.1", 0)), TcpListener::bind(("127.0.0.1", 0)));
    let (first, second) = (first.await.unwrap(), second.await.unwrap());
    let stays = rig.join(2, first.local_addr().unwrap().port()).await;
    let leaves = rig.join(3, second.local_addr().unwrap().port()).await;
    let leaving = Heartbeat { want_shutdown: true, ..heartbeat(3, leaves) };
    // It leads nothing, so nobody has to know.
    let reply = rig.active.heartbeat(leaving, Vec::new()).await.unwrap();
    assert!(reply.should_shut_down && reply.fenced);
    assert_eq!(rig.active.unregister(NodeId(3)).await, Ok(()));
    assert!(rig.metadata.image().brokers.get(NodeId(3)).is_none());
    let gone = rig.active.unregister(NodeId(3)).await;
    assert_eq!(gone, Err(DutyError::Refused(BrokerEpochError::NotRegistered(NodeId(3)))));
    assert!(rig.active.heartbeat(heartbeat(2, stays), Vec::new()).await.is_ok());
    rig.member.shutdown().await;
}

#[tokio::test]
async fn leadership_goes_back_to_preferred_replicas() {
    let rig = Rig::balancing(Some(Duration::from_millis(1))).await;
    let (first, second) = (TcpListener::bind(("127.0.0.1", 0)), TcpListener::bind(("127.0.0.1", 0)));
    let (first, second) = (first.await.unwrap(), second.await.unwrap());
    for (id, listener) in [(2, &first), (3, &second)] {
        rig.join(id, listener.local_addr().unwrap().port()).await;
    }
    let topic_id = Uuid::from_u128(500);
    let records: Vec<Record> = vec![
        TopicRecord { name: StrBytes::from_static_str("t"), topic_id, ..TopicRecord::default() }.into(),
        PartitionRecord {
            topic_id,
            partition_id: 0,
            replicas: vec![2, 3],
            isr: vec![2, 3],
            leader: 3,
            ..Default::default()
        }
        .into(),
    ];
    rig.metadata.run(move |_| Decision::new(records.clone(), ())).await.unwrap();
    let mut images = rig.metadata.subscribe();
    let balanced = images.wait_for(|image| {
        let partition = image.topics.partition(topic_id, PartitionIndex(0));
        partition.is_some_and(|partition| partition.leader == NodeId(2))
    });
    balanced.await.map(drop).unwrap();
    rig.member.shutdown().await;
}

#[test]
fn two_seconds_are_less_than_the_patience() {
    // A heartbeat every 250 ms, a standstill of two seconds, and something to spare.
    assert!(LivenessConfig::new(9_000).agreed_ms >= 2_000 + 250 + 100);
    assert_eq!(LivenessConfig::new(1_000).agreed_ms, 1_000, "a shorter session is the limit");
}
