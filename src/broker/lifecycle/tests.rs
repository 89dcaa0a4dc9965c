//! A broker's life over a quorum of one: it registers with patience, comes back when it was forgotten, gives way to another
//! process, and its lease lasts as long as its heartbeats are answered.

use std::sync::Arc;

use futures_util::FutureExt;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::beat::Farewell;
use super::{BrokerIdentity, Lifecycle, LifecycleError, LifecycleParts};
use crate::broker::clock;
use crate::broker::controller_channel::ControllerChannel;
use crate::broker::dynamic_config::DynamicConfig;
use crate::broker::lease::Lease;
use crate::broker::peer_silence::PeerSilence;
use crate::broker::reconciler::Reconciled;
use crate::broker::stall::{DiskWaits, StallLimits};
use crate::broker::start_tests::{layers, run_quorum};
use crate::controller::duties::{ActiveController, DutySettings, Office};
use crate::controller::{Controller, MetadataHandle};
use crate::metadata::Image;
use crate::metadata::brokers::{
    BrokerRegistration, Endpoint, Heartbeat, HeartbeatReply, Registration, register,
};
use crate::metadata::election::ElectionDefaults;
use crate::types::{BrokerEpoch, MonotonicMs, NodeId, Offset, Uuid};

const ID: NodeId = NodeId(5);

struct Rig {
    dir: tempfile::TempDir,
    metadata: MetadataHandle,
    member: Controller,
    office: watch::Sender<Option<u64>>,
    active: ActiveController,
}

impl Rig {
    async fn start() -> Rig {
        let dir = tempfile::tempdir().unwrap();
        let (metadata, member) = run_quorum(dir.path()).await;
        let (office, watched) = watch::channel(Some(1));
        let settings = |_: &Image| DutySettings {
            defaults: ElectionDefaults::default(),
            // Longer than any test.
            session_ms: 3_600_000,
            listener: "PLAINTEXT".into(),
            rebalance_interval: None,
            unclean_interval: std::time::Duration::from_secs(3600),
        };
        let watched = Office::new(watched, |_| true);
        let (active, task) = ActiveController::new(metadata.clone(), watched, None, Arc::new(settings));
        tokio::spawn(task);
        Rig { dir, metadata, member, office, active }
    }

    fn parts(&self, overrides: &[(&str, &str)]) -> LifecycleParts {
        let find = Arc::new(Vec::new);
        LifecycleParts {
            metadata: self.metadata.clone(),
            config: Arc::new(DynamicConfig::new(ID, layers(overrides))),
            channel: ControllerChannel::new(Some(self.active.clone()), find, "test".into(), "test"),
            lease: Lease::expired(),
            silence: PeerSilence::default(),
            reconciled: Reconciled::everything(),
            waits: DiskWaits::default(),
            stall_limits: StallLimits {
                stalled_ms: 3_600_000,
                calm_ms: 3_600_000,
                calm_for_ms: 0,
                standstill_ms: i64::MAX,
            },
            is_quiet: false,
        }
    }

    fn identity(&self) -> BrokerIdentity {
        let (listener, host) = ("PLAINTEXT".into(), "127.0.0.1".into());
        BrokerIdentity {
            id: ID,
            endpoints: vec![Endpoint { listener, host, port: 9, security_protocol: 0 }],
            rack: None,
            directories: vec![(Uuid::from_u128(1_005), self.dir.path().to_owned())],
            previous_epoch: BrokerEpoch::UNKNOWN,
        }
    }

    async fn join(&self, overrides: &[(&str, &str)]) -> (Lifecycle, Lease, JoinHandle<()>) {
        let parts = self.parts(overrides);
        let lease = parts.lease.clone();
        let (lifecycle, beat) = Lifecycle::register(parts, self.identity()).await.unwrap();
        let beat = tokio::spawn(beat);
        lifecycle.unfence().await.unwrap();
        (lifecycle, lease, beat)
    }

    async fn broker_that(&self, holds: impl Fn(&BrokerRegistration) -> bool + Send) {
        let mut images = self.metadata.subscribe();
        images.wait_for(|image| image.brokers.get(ID).is_some_and(&holds)).await.unwrap();
    }
}

#[tokio::test]
async fn a_broker_lives_as_long_as_its_heartbeats_are_answered() {
    let rig = Rig::start().await;
    let (lifecycle, lease, beat) = rig.join(&[]).await;
    let epoch = lifecycle.epoch();
    rig.broker_that(|broker| !broker.fenced && broker.epoch == epoch).await;
    assert!(lease.holds(clock::monotonic()));
    assert!(!lease.holds(MonotonicMs(clock::monotonic().0 + 3_600_000)));
    // It may go at once, since it leads nothing.
    lifecycle.leave().await;
    rig.broker_that(|broker| broker.fenced).await;
    beat.abort();
    rig.member.shutdown().await;
}

#[tokio::test]
async fn a_broker_whose_leave_nobody_answers_waits_for_it_once() {
    let rig = Rig::start().await;
    let (lifecycle, beat) = Lifecycle::register(rig.parts(&[]), rig.identity()).await.unwrap();
    drop(beat);
    lifecycle.leave().await;
    // A node leaves before its connections end, and its broker leaves when it is stopped.
    assert_eq!(lifecycle.clone().leave().now_or_never(), Some(()));
    rig.member.shutdown().await;
}

#[test]
fn a_farewell_begins_when_others_lead_and_ends_once() {
    let reply =
        |should_shut_down| HeartbeatReply { caught_up: true, fenced: should_shut_down, should_shut_down };
    let mut farewell = Farewell::default();
    // It does not want to go yet; it leads nothing that anybody must be told of.
    farewell.heard(false, reply(false), MonotonicMs(10));
    farewell.heard(true, reply(true), MonotonicMs(20));
    assert!(!farewell.lasts(MonotonicMs(20)));
    farewell.heard(true, reply(false), MonotonicMs(1_000));
    farewell.heard(false, reply(false), MonotonicMs(1_025));
    farewell.heard(true, reply(false), MonotonicMs(1_150));
    let lasts: Vec<bool> = [1_000, 1_199, 1_200, 5_000].map(|now| farewell.lasts(MonotonicMs(now))).to_vec();
    assert_eq!(lasts, [true, true, false, false]);
}

#[tokio::test]
async fn a_start_waits_for_a_controller() {
    let rig = Rig::start().await;
    rig.office.send_replace(None);
    let mut joined = Box::pin(rig.join(&[]));
    tokio::select! {
        _ = &mut joined => panic!("registered without a controller"),
        () = tokio::task::yield_now() => {}
    }
    // A quorum of one has one term.
    rig.office.send_replace(Some(1));
    let (_, _, beat) = joined.await;
    beat.abort();

    // And not for ever.
    rig.office.send_replace(None);
    let parts = rig.parts(&[("initial.broker.registration.timeout.ms", "1")]);
    let error = Lifecycle::register(parts, rig.identity()).await.map(|_| ()).unwrap_err();
    assert!(matches!(error, LifecycleError::NoController(_)), "{error}");
    rig.member.shutdown().await;
}

#[tokio::test]
async fn a_second_process_does_not_start() {
    let rig = Rig::start().await;
    let (_, _, beat) = rig.join(&[]).await;
    let parts = rig.parts(&[("initial.broker.registration.timeout.ms", "1")]);
    let error = Lifecycle::register(parts, rig.identity()).await.map(|_| ()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the broker cannot register: another process is registered under the id of this broker and still alive"
    );
    beat.abort();
    rig.member.shutdown().await;
}

#[tokio::test]
async fn a_broker_that_was_forgotten_registers_again() {
    let rig = Rig::start().await;
    let (lifecycle, lease, beat) = rig.join(&[]).await;
    let first = lifecycle.epoch();
    rig.active.unregister(ID).await.unwrap();
    rig.broker_that(|broker| broker.epoch > first && !broker.fenced).await;
    assert!(lifecycle.epoch() > first);
    lifecycle.report_failed_directories(Vec::new()).await.unwrap();
    assert!(lease.holds(clock::monotonic()));
    beat.abort();
    rig.member.shutdown().await;
}

#[tokio::test]
async fn a_process_gives_way_to_one_that_took_its_place() {
    let rig = Rig::start().await;
    let (lifecycle, lease, beat) = rig.join(&[]).await;
    let mut other = lifecycle.shared.registration(BrokerEpoch::UNKNOWN);
    other.incarnation = Uuid::from_u128(77);
    // The other one was taken for the only one, and is alive.
    let decide = move |image: &Image| register(image, &other, false, ElectionDefaults::default());
    let epoch = rig.metadata.run(decide).await.unwrap().unwrap();
    let heartbeat = Heartbeat {
        id: ID,
        epoch,
        metadata_offset: Offset(1_000),
        want_fence: false,
        want_shutdown: false,
        offline_directories: Vec::new(),
        cordoned_directories: None,
    };
    rig.active.heartbeat(heartbeat, Vec::new()).await.unwrap();
    assert!(lifecycle.ousted().await.contains("can no longer be this process"));
    assert!(!lease.holds(clock::monotonic()));
    lifecycle.leave().await;
    assert!(lifecycle.unfence().await.is_err());
    beat.abort();
    rig.member.shutdown().await;
}

#[tokio::test]
async fn a_broker_whose_disk_has_stalled_is_fenced_until_it_is_well() {
    let rig = Rig::start().await;
    let parts = rig.parts(&[]);
    let (slot, lease) = (parts.waits.slot(), parts.lease.clone());
    let (lifecycle, beat) = Lifecycle::register(parts, rig.identity()).await.unwrap();
    let beat = tokio::spawn(beat);
    lifecycle.unfence().await.unwrap();
    let waiting = slot.begin_at(MonotonicMs(clock::monotonic().0 - 3_700_000));
    // Where nobody could take over, it goes on.
    lifecycle.report_failed_directories(Vec::new()).await.unwrap();
    rig.broker_that(|broker| !broker.fenced).await;

    let other = Registration {
        id: NodeId(6),
        incarnation: Uuid::from_u128(78),
        directories: vec![Uuid::from_u128(1_006)],
        ..lifecycle.shared.registration(BrokerEpoch::UNKNOWN)
    };
    let epoch = rig.active.register_broker(other).await.unwrap();
    let heartbeat = Heartbeat {
        id: NodeId(6),
        epoch,
        metadata_offset: Offset(1_000),
        want_fence: false,
        want_shutdown: false,
        offline_directories: Vec::new(),
        cordoned_directories: None,
    };
    rig.active.heartbeat(heartbeat, Vec::new()).await.unwrap();
    rig.broker_that(|broker| broker.fenced).await;
    lifecycle.report_failed_directories(Vec::new()).await.unwrap();
    assert!(!lease.holds(clock::monotonic()));
    drop(waiting);
    rig.broker_that(|broker| !broker.fenced).await;
    beat.abort();
    rig.member.shutdown().await;
}
