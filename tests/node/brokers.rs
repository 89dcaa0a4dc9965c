//! A broker that a test plays joins the node's cluster over the controller listener: in every version of the requests, in
//! good order and out of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use floodmark::types::{ErrorCode, Uuid};
use floodmark::wire::messages::broker_registration_request::{Feature, Listener};
use floodmark::wire::messages::create_topics_request::CreatableReplicaAssignment;
use floodmark::wire::messages::*;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

use super::client::Client;
use super::harness::TestNode;
use super::requests::{assert_code, text, topic_name};

const ID: i32 = 2;

/// What the node's cluster id is, and which features it supports.
async fn cluster(client: &mut Client) -> (StrBytes, Vec<Feature>) {
    let cluster_id = client.call(2, DescribeClusterRequest::default()).await.cluster_id;
    let request = ApiVersionsRequest {
        client_software_name: text("test"),
        client_software_version: text("1"),
        ..ApiVersionsRequest::default()
    };
    let told = client.call(4, request).await;
    let features = told.supported_features.iter().map(|feature| {
        Feature::default()
            .with_name(feature.name.clone())
            .with_min_supported_version(feature.min_version)
            .with_max_supported_version(feature.max_version)
    });
    (cluster_id, features.collect())
}

/// Another broker of the node's cluster, with id 2.
pub struct Played {
    cluster_id: StrBytes,
    features: Vec<Feature>,
    listener: TcpListener,
}

impl Played {
    pub async fn new(node: &TestNode) -> Played {
        let (cluster_id, features) = cluster(&mut node.connect().await).await;
        Played { cluster_id, features, listener: TcpListener::bind(("127.0.0.1", 0)).await.unwrap() }
    }

    /// The next connection to its listener.
    pub async fn accept(&self) -> TcpStream {
        self.listener.accept().await.unwrap().0
    }

    pub fn registration(&self, version: i16, incarnation: u128) -> BrokerRegistrationRequest {
        let listener = Listener::default()
            .with_name(text("PLAINTEXT"))
            .with_host(text("127.0.0.1"))
            .with_port(self.listener.local_addr().unwrap().port());
        let request = BrokerRegistrationRequest::default()
            .with_broker_id(BrokerId(ID))
            .with_cluster_id(self.cluster_id.clone())
            .with_incarnation_id(Uuid::from_u128(incarnation))
            .with_listeners(vec![listener])
            .with_features(self.features.clone())
            .with_rack(None);
        let directories = vec![Uuid::from_u128(0x5000)];
        if version >= 2 { request.with_log_dirs(directories) } else { request }
    }

    /// Registers, and tries again for as long as the process before it counts as alive: until its connection is seen to be
    /// gone.
    async fn register(
        &self,
        client: &mut Client,
        version: i16,
        incarnation: u128,
    ) -> BrokerRegistrationResponse {
        loop {
            let registered = client.call(version, self.registration(version, incarnation)).await;
            if registered.error_code != ErrorCode::DuplicateBrokerRegistration.code() {
                return registered;
            }
        }
    }

    /// Registers as a new process and is unfenced. Gives the epoch.
    pub async fn join(&self, client: &mut Client, incarnation: u128) -> i64 {
        let request = self.registration(4, incarnation).with_rack(Some(text("b")));
        let registered = client.call(4, request).await;
        assert_code(registered.error_code, ErrorCode::None, "registration");
        let heartbeat = client.call(2, heartbeat(registered.broker_epoch)).await;
        assert_code(heartbeat.error_code, ErrorCode::None, "heartbeat");
        assert!(heartbeat.is_caught_up && !heartbeat.is_fenced && !heartbeat.should_shut_down);
        registered.broker_epoch
    }
}

/// The heartbeats of the played broker, as often as a real one sends them, until this is dropped. Without them a test that is
/// slow would see it fenced.
pub struct Beats {
    wants_fence: Arc<AtomicBool>,
    task: AbortHandle,
}

impl Beats {
    /// By the connection on which it has joined.
    pub fn begin(mut controller: Client, epoch: i64) -> Beats {
        let wants_fence = Arc::new(AtomicBool::new(false));
        let wanted = Arc::clone(&wants_fence);
        let task = tokio::spawn(async move {
            let mut pace = tokio::time::interval(Duration::from_millis(100));
            loop {
                pace.tick().await;
                let want_fence = wanted.load(Ordering::Relaxed);
                controller.call(2, BrokerHeartbeatRequest { want_fence, ..heartbeat(epoch) }).await;
            }
        });
        Beats { wants_fence, task: task.abort_handle() }
    }

    /// From now on the broker asks to be fenced, or no longer.
    pub fn want_fence(&self, wants: bool) {
        self.wants_fence.store(wants, Ordering::Relaxed);
    }
}

impl Drop for Beats {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub fn heartbeat(epoch: i64) -> BrokerHeartbeatRequest {
    BrokerHeartbeatRequest {
        broker_id: ID,
        broker_epoch: epoch,
        current_metadata_offset: 1_000_000,
        ..BrokerHeartbeatRequest::default()
    }
}

/// The brokers that clients are told of.
async fn brokers(client: &mut Client) -> Vec<i32> {
    let told = client.call(12, MetadataRequest::default().with_topics(Some(Vec::new()))).await;
    told.brokers.iter().map(|broker| broker.node_id.0).collect()
}

#[tokio::test]
async fn a_broker_registers_at_every_version() {
    let node = TestNode::start(&[]).await;
    let played = Played::new(&node).await;
    let mut controller = node.connect_to_controller().await;
    let mut last = -1;
    for version in 0..=4_i16 {
        let incarnation = u128::from(version.unsigned_abs()) + 1;
        // Before version 2 it names no log directories, which this metadata version wants to know.
        let registered = played.register(&mut controller, version, incarnation).await;
        if version < 2 {
            assert_code(registered.error_code, ErrorCode::InvalidRegistration, "without directories");
            assert_eq!(registered.broker_epoch, -1);
            continue;
        }
        assert_code(registered.error_code, ErrorCode::None, "registration");
        assert!(registered.broker_epoch > last);
        last = registered.broker_epoch;
        for version in 0..=2 {
            let told = controller.call(version, heartbeat(last)).await;
            assert_eq!((told.error_code, told.is_caught_up, told.is_fenced), (0, true, false));
        }
        assert_eq!(brokers(&mut node.connect().await).await, [1, 2]);
        // The process that was, and the one after it: another connection, for the one that breaks is the sign of its death.
        controller = node.connect_to_controller().await;
        let gone =
            controller.call(2, BrokerHeartbeatRequest { want_shut_down: true, ..heartbeat(last) }).await;
        assert!(gone.should_shut_down && gone.is_fenced);
        controller = node.connect_to_controller().await;
    }
    node.stop().await;
}

#[tokio::test]
async fn what_a_broker_must_not_be_is_refused() {
    let node = TestNode::start(&[]).await;
    let played = Played::new(&node).await;
    let mut controller = node.connect_to_controller().await;
    let epoch = played.join(&mut controller, 1).await;

    let good = || played.registration(4, 2);
    let cases = [
        (good(), ErrorCode::DuplicateBrokerRegistration),
        (good().with_cluster_id(text("another")), ErrorCode::InconsistentClusterId),
        (good().with_broker_id(BrokerId(-5)), ErrorCode::InvalidRegistration),
        (good().with_is_migrating_zk_broker(true), ErrorCode::BrokerIdNotRegistered),
        (good().with_broker_id(BrokerId(3)), ErrorCode::InvalidRegistration),
        (
            good().with_broker_id(BrokerId(3)).with_log_dirs(vec![Uuid::from_u128(7)]),
            ErrorCode::InvalidRegistration,
        ),
        (
            good()
                .with_broker_id(BrokerId(3))
                .with_log_dirs(vec![Uuid::from_u128(0x6000)])
                .with_features(Vec::new()),
            ErrorCode::UnsupportedVersion,
        ),
    ];
    let mut other = node.connect_to_controller().await;
    for (request, expected) in cases {
        let refused = other.call(4, request).await;
        assert_code(refused.error_code, expected, "registration");
        assert_eq!(refused.broker_epoch, -1);
    }
    // The same process may say it again.
    let again = other.call(4, played.registration(4, 1)).await;
    assert_eq!((again.error_code, again.broker_epoch), (0, epoch));

    for stale in [epoch - 1, epoch + 1, -1] {
        let refused = controller.call(2, heartbeat(stale)).await;
        assert_code(refused.error_code, ErrorCode::StaleBrokerEpoch, "heartbeat");
    }
    let unknown = controller.call(2, BrokerHeartbeatRequest { broker_id: 77, ..heartbeat(epoch) }).await;
    assert_code(unknown.error_code, ErrorCode::StaleBrokerEpoch, "heartbeat");
    assert_eq!(brokers(&mut node.connect().await).await, [1, 2], "nothing has changed");
    node.stop().await;
}

#[tokio::test]
async fn a_leader_alters_its_in_sync_set_and_loses_its_office_with_its_life() {
    let node = TestNode::start(&[]).await;
    let mut client = node.connect().await;
    let played = Played::new(&node).await;
    let mut controller = node.connect_to_controller().await;
    let epoch = played.join(&mut controller, 1).await;
    let topic_id = create_led_by(&mut client, &[ID, 1]).await;

    let proposal = |version: i16, isr: &[i32], leader_epoch: i32, partition_epoch: i32| {
        let partition = alter_partition_request::PartitionData::default()
            .with_leader_epoch(leader_epoch)
            .with_partition_epoch(partition_epoch);
        let member = |id: &i32| {
            let state = alter_partition_request::BrokerState::default().with_broker_id(BrokerId(*id));
            state.with_broker_epoch(if *id == ID { epoch } else { -1 })
        };
        let partition = if version >= 3 {
            partition.with_new_isr_with_epochs(isr.iter().map(member).collect())
        } else {
            partition.with_new_isr(isr.iter().map(|id| BrokerId(*id)).collect())
        };
        let topic = alter_partition_request::TopicData::default()
            .with_topic_id(topic_id)
            .with_partitions(vec![partition]);
        AlterPartitionRequest::default()
            .with_broker_id(BrokerId(ID))
            .with_broker_epoch(epoch)
            .with_topics(vec![topic])
    };
    let outcome = |response: AlterPartitionResponse| {
        assert_eq!(response.error_code, 0);
        response.topics[0].partitions[0].clone()
    };
    let mut known = 0;
    for version in 2..=3 {
        for isr in [&[ID][..], &[ID, 1]] {
            let altered = outcome(controller.call(version, proposal(version, isr, 0, known)).await);
            assert_code(altered.error_code, ErrorCode::None, "an in-sync set");
            assert_eq!(altered.isr.iter().map(|id| id.0).collect::<Vec<_>>(), isr);
            assert_eq!((altered.leader_id.0, altered.leader_epoch), (ID, 0));
            assert_eq!(altered.partition_epoch, known + 1);
            known += 1;
        }
    }
    let refused: BTreeMap<&str, (AlterPartitionRequest, ErrorCode)> = [
        ("a member that is no replica", (proposal(3, &[ID, 9], 0, known), ErrorCode::InvalidRequest)),
        ("without the leader", (proposal(3, &[1], 0, known), ErrorCode::InvalidRequest)),
        ("an old state", (proposal(3, &[ID], 0, known - 1), ErrorCode::InvalidUpdateVersion)),
        ("a state that is not yet", (proposal(3, &[ID], 7, known), ErrorCode::NotController)),
    ]
    .into();
    for (what, (request, expected)) in refused {
        assert_code(outcome(controller.call(3, request).await).error_code, expected, what);
    }
    let stale = controller.call(3, proposal(3, &[ID], 0, known).with_broker_epoch(epoch - 1)).await;
    assert_code(stale.error_code, ErrorCode::StaleBrokerEpoch, "all of a stale broker");

    // It dies: nobody listens there any more, and its connection breaks.
    drop(played);
    drop(controller);
    while brokers(&mut client).await != [1] {
        tokio::task::yield_now().await;
    }
    let told = client.call(12, super::versions::metadata_request(12, &["led"])).await;
    let partition = &told.topics[0].partitions[0];
    assert_eq!((partition.leader_id.0, partition.leader_epoch), (1, 1));
    assert_eq!(partition.isr_nodes.iter().map(|id| id.0).collect::<Vec<_>>(), [1]);
    node.stop().await;
}

/// A topic `led` with one partition on these brokers.
pub async fn create_led_by(client: &mut Client, replicas: &[i32]) -> Uuid {
    create_assigned(client, &[replicas]).await
}

/// A topic `led` whose partitions are on these brokers.
pub async fn create_assigned(client: &mut Client, partitions: &[&[i32]]) -> Uuid {
    let assignments = (0..).zip(partitions).map(|(partition, replicas)| {
        CreatableReplicaAssignment::default()
            .with_partition_index(partition)
            .with_broker_ids(replicas.iter().map(|id| BrokerId(*id)).collect())
    });
    let topic = create_topics_request::CreatableTopic::default()
        .with_name(topic_name("led"))
        .with_num_partitions(-1)
        .with_replication_factor(-1)
        .with_assignments(assignments.collect());
    let request = CreateTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(30_000);
    let created = client.call(7, request).await;
    assert_code(created.topics[0].error_code, ErrorCode::None, "led");
    created.topics[0].topic_id
}

#[tokio::test]
async fn a_controller_registers() {
    let node = TestNode::start(&[]).await;
    let mut controller = node.connect_to_controller().await;
    let request = ControllerRegistrationRequest::default().with_controller_id(8);
    let request = request.with_incarnation_id(Uuid::from_u128(3));
    let registered = controller.call(0, request.clone()).await;
    assert_eq!((registered.error_code, registered.error_message), (0, None));
    let refused = controller.call(0, request.with_controller_id(-8)).await;
    assert_code(refused.error_code, ErrorCode::InvalidRegistration, "a negative id");
    assert!(refused.error_message.is_some());
    node.stop().await;
}
