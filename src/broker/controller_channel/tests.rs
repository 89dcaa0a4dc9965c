//! The channel against controllers that a test plays: found, kept, found again; and what their answers mean.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::protocol::Encodable;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::{AlterCallError, ChannelError, ControllerChannel, HeartbeatCallError, RegisterCallError};
use crate::broker::start_tests::run_quorum;
use crate::controller::MetadataHandle;
use crate::controller::duties::{ActiveController, DutySettings};
use crate::metadata::alter_partition::ProposedIsr;
use crate::metadata::brokers::{Endpoint, Heartbeat, HeartbeatReply, Registration};
use crate::metadata::election::ElectionDefaults;
use crate::metadata::topics::LeaderRecoveryState;
use crate::metadata::{Decision, Image};
use crate::peer::Address;
use crate::replica::AlterOutcome;
use crate::types::{
    BrokerEpoch, ErrorCode, LeaderEpoch, NodeId, Offset, PartitionEpoch, PartitionIndex, TopicIdPartition,
    Uuid,
};
use crate::wire::frame::{RequestFrame, decode, encode_response, parse_request};
use crate::wire::messages::alter_partition_response::{PartitionData, TopicData};
use crate::wire::messages::api_versions_response::ApiVersion;
use crate::wire::messages::{
    AlterPartitionRequest, AlterPartitionResponse, ApiVersionsResponse, BrokerHeartbeatRequest,
    BrokerHeartbeatResponse, BrokerId, BrokerRegistrationRequest, BrokerRegistrationResponse,
};

/// Longer than any test may take.
const LONG: Duration = Duration::from_secs(3600);

/// A controller at a port of its own.
struct Played {
    listener: TcpListener,
    address: Address,
}

impl Played {
    async fn listen() -> Played {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        Played { listener, address: Address { host: "127.0.0.1".to_owned(), port } }
    }

    /// The next connection, past its ApiVersions.
    async fn accept(&self) -> TcpStream {
        let (mut stream, _) = self.listener.accept().await.unwrap();
        let request = read(&mut stream).await;
        let served = [(56, 2, 3), (62, 0, 4), (63, 0, 2)].map(|(api_key, min_version, max_version)| {
            ApiVersion { api_key, min_version, max_version, ..ApiVersion::default() }
        });
        let response = ApiVersionsResponse { api_keys: served.to_vec(), ..ApiVersionsResponse::default() };
        answer(&mut stream, &request, &response).await;
        stream
    }
}

async fn read(stream: &mut TcpStream) -> RequestFrame {
    let mut frame = vec![0; usize::try_from(stream.read_i32().await.unwrap()).unwrap()];
    stream.read_exact(&mut frame).await.unwrap();
    parse_request(Bytes::from(frame)).unwrap()
}

async fn answer<T: Encodable + 'static>(stream: &mut TcpStream, to: &RequestFrame, response: &T) {
    let frame = encode_response(to.api, to.version, to.correlation_id, response).unwrap();
    stream.write_all(&frame.into_bytes()).await.unwrap();
}

/// A channel to whoever is in the slot.
fn channel() -> (ControllerChannel, Arc<Mutex<Option<Address>>>) {
    let leader = Arc::new(Mutex::new(None));
    let found = Arc::clone(&leader);
    let find = Arc::new(move || found.lock().unwrap().iter().cloned().collect());
    (ControllerChannel::new(None, find, "cluster".into(), "test"), leader)
}

fn heartbeat() -> Heartbeat {
    Heartbeat {
        id: NodeId(1),
        epoch: BrokerEpoch(7),
        metadata_offset: Offset(9),
        want_fence: false,
        want_shutdown: true,
        offline_directories: vec![Uuid::from_u128(5)],
        cordoned_directories: Some(Vec::new()),
    }
}

#[tokio::test]
async fn the_connection_is_kept_and_follows_the_leader() {
    let (channel, leader) = channel();
    let request = BrokerHeartbeatRequest::default();
    let nobody = channel.call(&request, LONG).await;
    assert!(matches!(nobody, Err(ChannelError::NoController)));

    let first = Played::listen().await;
    *leader.lock().unwrap() = Some(first.address.clone());
    let serve = async {
        let mut stream = first.accept().await;
        for _ in 0..2 {
            let asked = read(&mut stream).await;
            answer(&mut stream, &asked, &BrokerHeartbeatResponse::default()).await;
        }
        // It dies in the middle of a request.
        read(&mut stream).await;
        drop(stream);
        let mut stream = first.accept().await;
        let asked = read(&mut stream).await;
        answer(&mut stream, &asked, &BrokerHeartbeatResponse::default()).await;
    };
    let calls = async {
        channel.call(&request, LONG).await.unwrap();
        channel.clone().call(&request, LONG).await.unwrap();
        assert!(matches!(channel.call(&request, LONG).await, Err(ChannelError::Call(..))));
        channel.call(&request, LONG).await.unwrap();
    };
    tokio::join!(serve, calls);

    let second = Played::listen().await;
    *leader.lock().unwrap() = Some(second.address.clone());
    let serve = async {
        let mut stream = second.accept().await;
        let asked = read(&mut stream).await;
        answer(&mut stream, &asked, &BrokerHeartbeatResponse::default()).await;
    };
    let (_, called) = tokio::join!(serve, channel.call(&request, LONG));
    called.unwrap();

    let address = second.address.clone();
    drop(second);
    let (separate, gone) = (channel.separate(), address);
    *leader.lock().unwrap() = Some(gone);
    assert!(matches!(separate.call(&request, LONG).await, Err(ChannelError::Dial(_))));
}

#[tokio::test]
async fn heartbeats_say_what_there_is_to_say() {
    let (channel, leader) = channel();
    let controller = Played::listen().await;
    *leader.lock().unwrap() = Some(controller.address.clone());
    let silent = [(NodeId(3), 1_700)];
    let serve = async {
        let mut stream = controller.accept().await;
        let asked = read(&mut stream).await;
        let request: BrokerHeartbeatRequest = decode(asked.body.clone(), asked.version).unwrap();
        assert_eq!((request.broker_id, request.broker_epoch, request.current_metadata_offset), (1, 7, 9));
        assert!(request.want_shut_down && !request.want_fence);
        assert_eq!(request.offline_log_dirs, [Uuid::from_u128(5)]);
        assert_eq!(request.cordoned_log_dirs, Some(Vec::new()));
        assert_eq!(request.silent_brokers(), silent);
        let told = BrokerHeartbeatResponse {
            is_caught_up: true,
            is_fenced: false,
            should_shut_down: true,
            ..BrokerHeartbeatResponse::default()
        };
        answer(&mut stream, &asked, &told).await;
        for error in [ErrorCode::StaleBrokerEpoch, ErrorCode::NotController] {
            let asked = read(&mut stream).await;
            let refused = BrokerHeartbeatResponse { error_code: error.code(), ..Default::default() };
            answer(&mut stream, &asked, &refused).await;
        }
    };
    let calls = async {
        let told = channel.heartbeat(&heartbeat(), &silent, LONG).await.unwrap();
        let expected = HeartbeatReply { caught_up: true, fenced: false, should_shut_down: true };
        assert_eq!(told, expected);
        let stale = channel.heartbeat(&heartbeat(), &[], LONG).await;
        assert_eq!(stale, Err(HeartbeatCallError::Stale));
        let elsewhere = channel.heartbeat(&heartbeat(), &[], LONG).await;
        assert!(matches!(elsewhere, Err(HeartbeatCallError::Unavailable(_))));
    };
    tokio::join!(serve, calls);
}

#[tokio::test]
async fn registrations_are_refused_for_now_or_for_good() {
    let (channel, leader) = channel();
    let controller = Played::listen().await;
    *leader.lock().unwrap() = Some(controller.address.clone());
    let registration = Registration {
        id: NodeId(1),
        incarnation: Uuid::from_u128(8),
        endpoints: vec![Endpoint {
            listener: "PLAINTEXT".into(),
            host: "localhost".into(),
            port: 9092,
            security_protocol: 0,
        }],
        features: [("metadata.version".into(), (7, 33))].into(),
        rack: Some("r".into()),
        directories: vec![Uuid::from_u128(500)],
        previous_epoch: BrokerEpoch(4),
    };
    let answers = [
        (ErrorCode::None, Ok(BrokerEpoch(42))),
        (ErrorCode::DuplicateBrokerRegistration, Err(RegisterCallError::Duplicate)),
        (
            ErrorCode::InconsistentClusterId,
            Err(RegisterCallError::Refused(
                "the active controller answers INCONSISTENT_CLUSTER_ID".to_owned(),
            )),
        ),
        (
            ErrorCode::NotController,
            Err(RegisterCallError::Unavailable("the active controller answers NOT_CONTROLLER".to_owned())),
        ),
    ];
    let serve = async {
        let mut stream = controller.accept().await;
        for (error, _) in &answers {
            let asked = read(&mut stream).await;
            let request: BrokerRegistrationRequest = decode(asked.body.clone(), asked.version).unwrap();
            assert_eq!((request.cluster_id.as_str(), request.previous_broker_epoch), ("cluster", 4));
            assert_eq!(request.listeners[0].port, 9092);
            assert_eq!(request.features[0].max_supported_version, 33);
            assert_eq!(request.log_dirs, registration.directories);
            let response = BrokerRegistrationResponse::default().with_error_code(error.code());
            answer(&mut stream, &asked, &response.with_broker_epoch(42)).await;
        }
    };
    let calls = async {
        for (_, expected) in &answers {
            assert_eq!(&channel.register(&registration, LONG).await, expected);
        }
    };
    tokio::join!(serve, calls);
}

#[tokio::test]
async fn each_in_sync_set_has_its_outcome() {
    let (channel, leader) = channel();
    let controller = Played::listen().await;
    *leader.lock().unwrap() = Some(controller.address.clone());
    let id = |topic: u128, partition: i32| TopicIdPartition {
        topic_id: Uuid::from_u128(topic),
        partition: PartitionIndex(partition),
    };
    let propose = |partition| ProposedIsr {
        partition,
        leader_epoch: LeaderEpoch(3),
        partition_epoch: PartitionEpoch(5),
        isr: vec![(NodeId(1), BrokerEpoch(7)), (NodeId(2), BrokerEpoch(8))],
        recovery_state: LeaderRecoveryState::Recovered,
    };
    let proposals = [id(1, 0), id(2, 0), id(1, 1), id(1, 2)].map(propose);
    let serve = async {
        let mut stream = controller.accept().await;
        let asked = read(&mut stream).await;
        let request: AlterPartitionRequest = decode(asked.body.clone(), asked.version).unwrap();
        let partitions = |topic: usize| -> Vec<i32> {
            request.topics[topic].partitions.iter().map(|partition| partition.partition_index).collect()
        };
        assert_eq!((partitions(0), partitions(1)), (vec![0, 1, 2], vec![0]));
        assert_eq!(request.topics[0].partitions[0].new_isr_with_epochs[1].broker_epoch, 8);
        let shown = |index: i32, error: ErrorCode| {
            PartitionData::default().with_partition_index(index).with_error_code(error.code())
        };
        let applied = shown(0, ErrorCode::None)
            .with_leader_epoch(3)
            .with_partition_epoch(6)
            .with_isr(vec![BrokerId(1), BrokerId(2)]);
        let first = vec![applied, shown(1, ErrorCode::IneligibleReplica), shown(2, ErrorCode::NotController)];
        let second = vec![shown(0, ErrorCode::FencedLeaderEpoch)];
        let topics = [(1, first), (2, second)].map(|(topic, partitions)| {
            TopicData::default().with_topic_id(Uuid::from_u128(topic)).with_partitions(partitions)
        });
        answer(&mut stream, &asked, &AlterPartitionResponse::default().with_topics(topics.to_vec())).await;
        let asked = read(&mut stream).await;
        let stale = AlterPartitionResponse::default().with_error_code(ErrorCode::StaleBrokerEpoch.code());
        answer(&mut stream, &asked, &stale).await;
    };
    let calls = async {
        let (leader, epoch) = (NodeId(1), BrokerEpoch(7));
        let applied = AlterOutcome::Applied {
            leader_epoch: LeaderEpoch(3),
            partition_epoch: PartitionEpoch(6),
            isr: vec![NodeId(1), NodeId(2)],
        };
        let expected = vec![
            (id(1, 0), applied),
            (id(1, 1), AlterOutcome::Refused),
            (id(1, 2), AlterOutcome::Unknown),
            (id(2, 0), AlterOutcome::Superseded),
        ];
        assert_eq!(channel.alter_partitions(leader, epoch, &proposals, LONG).await, Ok(expected));
        let stale = channel.alter_partitions(leader, epoch, &proposals, LONG).await;
        assert_eq!(stale, Err(AlterCallError::Stale));
    };
    tokio::join!(serve, calls);
}

#[tokio::test]
async fn of_several_that_may_lead_the_one_that_does_is_found() {
    let (down, follower, leader) = (Played::listen().await, Played::listen().await, Played::listen().await);
    let candidates = [&down, &follower, &leader].map(|played| played.address.clone()).to_vec();
    drop(down);
    let find = Arc::new(move || candidates.clone());
    let channel = ControllerChannel::new(None, find, "cluster".into(), "test");
    let serve = async {
        for (played, error) in [(&follower, ErrorCode::NotController), (&leader, ErrorCode::None)] {
            let mut stream = played.accept().await;
            let asked = read(&mut stream).await;
            let response = BrokerHeartbeatResponse { error_code: error.code(), ..Default::default() };
            answer(&mut stream, &asked, &response).await;
        }
    };
    let beat = heartbeat();
    let (_, told) = tokio::join!(serve, channel.heartbeat(&beat, &[], LONG));
    told.unwrap();
}

/// Holds up all decisions until what it gives is dropped.
async fn hold_up(metadata: &MetadataHandle) -> std::sync::mpsc::Sender<()> {
    let (release, held) = std::sync::mpsc::channel::<()>();
    let (begins, mut begun) = tokio::sync::mpsc::unbounded_channel();
    let metadata = metadata.clone();
    tokio::spawn(async move {
        let held_up = metadata.run(move |_| {
            begins.send(()).ok();
            held.recv().ok();
            Decision::reply(())
        });
        held_up.await
    });
    begun.recv().await.unwrap();
    release
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_decision_here_that_takes_too_long_is_asked_for_elsewhere_if_there_are_others() {
    let dir = tempfile::tempdir().unwrap();
    let (metadata, member) = run_quorum(dir.path()).await;
    let settings = |_: &Image| DutySettings {
        defaults: ElectionDefaults::default(),
        session_ms: 3_600_000,
        listener: "PLAINTEXT".into(),
        rebalance_interval: None,
        unclean_interval: LONG,
    };
    let (active, _task) =
        ActiveController::new(metadata.clone(), metadata.office(), None, Arc::new(settings));
    let (other, here) = (Played::listen().await, Played::listen().await);
    let addresses = [&other, &here].map(|played| played.address.clone());
    let channel = |of: &[Address]| {
        let of = of.to_vec();
        ControllerChannel::new(Some(active.clone()), Arc::new(move || of.clone()), "cluster".into(), "test")
    };
    let beat = heartbeat();

    // The only voter decides by itself, however long it takes.
    let alone = channel(&addresses[1..]);
    let held = hold_up(&metadata).await;
    let late = alone.heartbeat(&beat, &[], Duration::from_millis(1)).await;
    assert!(matches!(late, Err(HeartbeatCallError::Unavailable(_))));
    drop(held);
    assert_eq!(alone.heartbeat(&beat, &[], LONG).await, Err(HeartbeatCallError::Stale));

    let channel = channel(&addresses);
    let held = hold_up(&metadata).await;
    let late = channel.heartbeat(&beat, &[], Duration::from_millis(1)).await;
    assert!(matches!(late, Err(HeartbeatCallError::Unavailable(_))));
    drop(held);
    // As long as another node answers as the controller does, it is asked.
    let serve = async {
        let mut stream = other.accept().await;
        for error in [ErrorCode::None, ErrorCode::None, ErrorCode::NotController] {
            let asked = read(&mut stream).await;
            let response = BrokerHeartbeatResponse { error_code: error.code(), ..Default::default() };
            answer(&mut stream, &asked, &response).await;
        }
        let mut stream = here.accept().await;
        let asked = read(&mut stream).await;
        answer(&mut stream, &asked, &BrokerHeartbeatResponse::default()).await;
    };
    let calls = async {
        for _ in 0..3 {
            channel.heartbeat(&beat, &[], LONG).await.unwrap();
        }
    };
    tokio::join!(serve, calls);
    let told = channel.heartbeat(&beat, &[], LONG).await;
    assert_eq!(told, Err(HeartbeatCallError::Stale), "this node knows of no such broker, and is asked again");
    member.shutdown().await;
}
