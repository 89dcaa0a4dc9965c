//! A cluster for a test: each node with a directory and fixed ports of its own. Waiting is asking until the answer is the one
//! that must come.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use floodmark::broker::loggers::Loggers;
use floodmark::cli::Failure;
use floodmark::cli::node::RunningNode;
use floodmark::config::{self, Sources};
use floodmark::types::ErrorCode;
use floodmark::wire::messages::create_topics_request::CreatableReplicaAssignment;
use floodmark::wire::messages::delete_topics_request::DeleteTopicState;
use floodmark::wire::messages::metadata_request::MetadataRequestTopic;
use floodmark::wire::messages::metadata_response::{MetadataResponsePartition, MetadataResponseTopic};
use floodmark::wire::messages::{
    BrokerId, CreateTopicsRequest, DeleteTopicsRequest, MetadataRequest, RecordBytes,
};
use tempfile::TempDir;

use super::client::Client;
use super::link::Link;
use super::requests::{assert_code, batch, fetch, new_topic, produce, topic_name};

const CLUSTER_ID: &str = "Y2x1c3Rlci10ZXN0LTAwMQ";
/// How often is asked for what must come.
const PACE: Duration = Duration::from_millis(20);
const NOT_YET: [ErrorCode; 6] = [
    ErrorCode::NotLeaderOrFollower,
    ErrorCode::LeaderNotAvailable,
    ErrorCode::NotEnoughReplicas,
    ErrorCode::NotEnoughReplicasAfterAppend,
    ErrorCode::UnknownTopicOrPartition,
    ErrorCode::RequestTimedOut,
];

pub struct Cluster {
    pub dir: TempDir,
    nodes: BTreeMap<i32, RunningNode>,
    env: Vec<(String, String)>,
    overrides: BTreeMap<i32, Vec<(String, String)>>,
    ports: BTreeMap<i32, Ports>,
    /// The ways between nodes that can be cut: from whom, if it is from one alone, and to whom.
    links: Vec<(Option<i32>, i32, Link)>,
}

/// The port of a node's broker, and that of its controller.
type Ports = [u16; 2];

impl Cluster {
    /// Nodes 1 to `size`, each broker and voter, with these settings on top.
    pub async fn start(size: i32, settings: &[(&str, &str)]) -> Cluster {
        let mut cluster = Cluster::configured(size, settings);
        cluster.begin().await;
        cluster
    }

    /// The same, with nodes that reach each other by ways that can be cut. The test is at each node itself.
    pub async fn linked(size: i32, settings: &[(&str, &str)]) -> Cluster {
        let mut cluster = Cluster::configured(size, settings);
        cluster.link().await;
        cluster.begin().await;
        cluster
    }

    async fn begin(&mut self) {
        self.overrides.values().for_each(|overrides| format(overrides));
        let ids: Vec<i32> = self.overrides.keys().copied().collect();
        self.start_nodes(&ids).await;
    }

    /// The same with nodes that are not formatted, and of which nothing runs yet. Each is told its cluster by `CLUSTER_ID`.
    pub fn told(size: i32) -> Cluster {
        let told = ("CLUSTER_ID".to_owned(), CLUSTER_ID.to_owned());
        Cluster { env: vec![told], ..Cluster::configured(size, &[]) }
    }

    fn configured(size: i32, settings: &[(&str, &str)]) -> Cluster {
        let dir = tempfile::tempdir().unwrap();
        let free = free_ports(2 * usize::try_from(size).unwrap());
        let ports: BTreeMap<i32, Ports> =
            (1..=size).zip(free.chunks(2).map(|ports| [ports[0], ports[1]])).collect();
        let voters: Vec<String> =
            ports.iter().map(|(id, port)| format!("{id}@127.0.0.1:{}", port[1])).collect();
        let overrides = ports.iter().map(|(id, port)| {
            let own = [
                ("node.id", id.to_string()),
                ("process.roles", "broker,controller".to_owned()),
                (
                    "listeners",
                    format!("PLAINTEXT://127.0.0.1:{},CONTROLLER://127.0.0.1:{}", port[0], port[1]),
                ),
                ("controller.listener.names", "CONTROLLER".to_owned()),
                ("controller.quorum.voters", voters.join(",")),
                ("log.dirs", dir.path().join(id.to_string()).display().to_string()),
                ("num.shard.threads", "2".to_owned()),
                ("default.replication.factor", size.to_string()),
                // Records of tests are of 1970, and tests may be slow.
                ("log.initial.task.delay.ms", "3600000".to_owned()),
            ];
            let own = own.into_iter().map(|(key, value)| (key.to_owned(), value));
            let more = settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            (*id, own.chain(more).collect::<Vec<_>>())
        });
        let overrides: BTreeMap<i32, Vec<(String, String)>> = overrides.collect();
        Cluster { dir, nodes: BTreeMap::new(), env: Vec::new(), overrides, ports, links: Vec::new() }
    }

    /// Each node is told of its own ways to the other controllers, and tells everybody of one to its broker.
    async fn link(&mut self) {
        let ids: Vec<i32> = self.ports.keys().copied().collect();
        for &id in &ids {
            let [broker, controller] = self.ports[&id];
            let to_broker = self.add_link(None, id, broker).await;
            let advertised = format!("PLAINTEXT://127.0.0.1:{to_broker},CONTROLLER://127.0.0.1:{controller}");
            let mut voters = Vec::new();
            for &other in &ids {
                let there = self.ports[&other][1];
                let port = if other == id { there } else { self.add_link(Some(id), other, there).await };
                voters.push(format!("{other}@127.0.0.1:{port}"));
            }
            let overrides = self.overrides.get_mut(&id).unwrap();
            overrides.retain(|(key, _)| key != "controller.quorum.voters");
            overrides.push(("controller.quorum.voters".to_owned(), voters.join(",")));
            overrides.push(("advertised.listeners".to_owned(), advertised));
        }
    }

    async fn add_link(&mut self, from: Option<i32>, to: i32, port: u16) -> u16 {
        let own = free_ports(1)[0];
        self.links.push((from, to, Link::open(own, port).await));
        own
    }

    /// No other node reaches this one, and it reaches no controller of theirs; or all is well again.
    pub fn cut_off(&self, id: i32, is_cut: bool) {
        for (_, _, link) in self.links.iter().filter(|(from, to, _)| *from == Some(id) || *to == id) {
            link.cut(is_cut);
        }
    }

    /// Starts nodes side by side: the first of a quorum waits for the others.
    pub async fn start_nodes(&mut self, ids: &[i32]) {
        // If one of them fails, the others may wait for ever.
        let started = futures_util::future::try_join_all(ids.iter().map(|id| self.try_start(*id))).await;
        let started = started.unwrap_or_else(|error| panic!("{error}"));
        self.nodes.extend(ids.iter().copied().zip(started));
    }

    /// The node, which is not one of the cluster's yet, or why it does not start.
    pub async fn try_start(&self, id: i32) -> Result<RunningNode, Failure> {
        let (env, overrides) = (self.env.clone(), self.overrides[&id].clone());
        let config = config::load(&Sources { file: None, env, overrides });
        let config = config.unwrap_or_else(|errors| panic!("{errors}"));
        RunningNode::start(&config, Arc::new(Loggers::detached())).await
    }

    /// Stops a node in an orderly way.
    pub async fn stop_node(&mut self, id: i32) {
        self.nodes.remove(&id).unwrap().stop().await;
    }

    /// Stops all nodes side by side.
    pub async fn stop(mut self) -> TempDir {
        self.stop_all().await;
        self.dir
    }

    pub async fn stop_all(&mut self) {
        let nodes = std::mem::take(&mut self.nodes);
        futures_util::future::join_all(nodes.into_values().map(RunningNode::stop)).await;
    }

    pub fn running(&self) -> Vec<i32> {
        self.nodes.keys().copied().collect()
    }

    pub fn data_of(&self, id: i32) -> PathBuf {
        self.dir.path().join(id.to_string())
    }

    pub async fn connect(&self, id: i32) -> Client {
        Client::connect(SocketAddr::from(([127, 0, 0, 1], self.ports[&id][0]))).await
    }

    /// What a node says of a topic.
    pub async fn topic_at(&self, id: i32, name: &str) -> MetadataResponseTopic {
        let topic = MetadataRequestTopic::default().with_name(Some(topic_name(name)));
        let request =
            MetadataRequest::default().with_topics(Some(vec![topic])).with_allow_auto_topic_creation(false);
        self.connect(id).await.call(12, request).await.topics.remove(0)
    }

    /// Waits until all running nodes say of each partition of a topic what they must.
    pub async fn until_partitions(&self, name: &str, holds: impl Fn(&MetadataResponsePartition) -> bool) {
        for id in self.running() {
            until(async || {
                let topic = self.topic_at(id, name).await;
                topic.error_code == 0 && topic.partitions.iter().all(&holds)
            })
            .await;
        }
    }

    /// Waits until everybody says that all of a topic's replicas are in sync.
    pub async fn until_in_sync(&self, name: &str) {
        self.until_partitions(name, |partition| partition.isr_nodes.len() == partition.replica_nodes.len())
            .await;
    }

    pub async fn leader(&self, name: &str, partition: i32) -> i32 {
        let id = self.running()[0];
        let topic = self.topic_at(id, name).await;
        let told = topic.partitions.iter().find(|told| told.partition_index == partition).unwrap();
        told.leader_id.0
    }

    /// Creates a topic with a replica on every node, by way of the node `id`.
    pub async fn create_topic(&self, id: i32, name: &str, partitions: i32, configs: &[(&str, &str)]) {
        let topic = new_topic(name, partitions, configs).with_replication_factor(-1);
        let request = CreateTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(30_000);
        let response = self.connect(id).await.call(7, request).await;
        assert_code(response.topics[0].error_code, ErrorCode::None, name);
    }

    /// Creates a topic of one partition with these replicas, by way of the node `id`.
    pub async fn create_topic_on(&self, id: i32, name: &str, replicas: &[i32]) {
        let assignment = CreatableReplicaAssignment::default()
            .with_broker_ids(replicas.iter().copied().map(BrokerId).collect());
        let topic = new_topic(name, -1, &[]).with_replication_factor(-1).with_assignments(vec![assignment]);
        let request = CreateTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(30_000);
        let response = self.connect(id).await.call(7, request).await;
        assert_code(response.topics[0].error_code, ErrorCode::None, name);
    }

    pub async fn delete_topic(&self, id: i32, name: &str) {
        let topic = DeleteTopicState::default().with_name(Some(topic_name(name)));
        let request = DeleteTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(30_000);
        let response = self.connect(id).await.call(6, request).await;
        assert_code(response.responses[0].error_code, ErrorCode::None, name);
    }

    /// Produces with acks=all as a client does: looks for the leader again when it is another one, or is not ready. Gives the base
    /// offset.
    pub async fn produce(&self, name: &str, partition: i32, values: &[&str]) -> i64 {
        let mut offset = None;
        until(async || {
            offset = self.produce_once(name, partition, batch(values)).await.ok();
            offset.is_some()
        })
        .await;
        offset.unwrap()
    }

    /// One attempt; errors that do not pass fail the test.
    pub async fn produce_once(&self, name: &str, partition: i32, records: Bytes) -> Result<i64, ErrorCode> {
        let leader = self.leader(name, partition).await;
        if !self.nodes.contains_key(&leader) {
            return Err(ErrorCode::LeaderNotAvailable);
        }
        let produced = produce(&mut self.connect(leader).await, name, partition, records).await;
        match ErrorCode::from_code(produced.error_code).unwrap() {
            ErrorCode::None => Ok(produced.base_offset),
            error if NOT_YET.contains(&error) => Err(error),
            error => panic!("{name}-{partition}: {error}"),
        }
    }

    /// The records of a partition as its leader gives them, once they end at `end`.
    pub async fn read(&self, name: &str, partition: i32, end: i64) -> Bytes {
        let mut records = Bytes::new();
        until(async || {
            let leader = self.leader(name, partition).await;
            if !self.nodes.contains_key(&leader) {
                return false;
            }
            let fetched = fetch(&mut self.connect(leader).await, name, partition, 0).await;
            records = fetched.records.map(RecordBytes::into_bytes).unwrap_or_default();
            fetched.error_code == 0 && fetched.high_watermark == end
        })
        .await;
        records
    }
}

/// Asks until the answer is yes.
pub async fn until(mut ask: impl AsyncFnMut() -> bool) {
    let mut pace = tokio::time::interval(PACE);
    while !ask().await {
        pace.tick().await;
    }
}

/// The files of a partition that hold records, by name.
pub fn segments(data: &Path, partition: &str) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(data.join(partition)).unwrap().map(|entry| entry.unwrap());
    let logs = entries.filter(|entry| entry.path().extension().is_some_and(|extension| extension == "log"));
    logs.map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap()))
        .collect()
}

/// As an operator formats a node that is part of a quorum.
fn format(overrides: &[(String, String)]) {
    let settings =
        overrides.iter().flat_map(|(key, value)| ["--override".to_owned(), format!("{key}={value}")]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_floodmark"));
    command.args(["storage", "format", "--cluster-id", CLUSTER_ID]).args(settings);
    let done = command.env_clear().output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// Ports that nobody listens on. They are not of those that the system gives to connections: one of another test could have
/// such a port while its node does not run.
fn free_ports(count: usize) -> Vec<u16> {
    static NEXT: OnceLock<AtomicU16> = OnceLock::new();
    let spread = || AtomicU16::new(12_000 + u16::try_from(std::process::id() % 1_000).unwrap() * 16);
    let next = NEXT.get_or_init(spread);
    let ports = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
    ports.filter(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).take(count).collect()
}
