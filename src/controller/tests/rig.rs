//! Members of one quorum in this process, each behind a socket of its own as a node's controller listener would be.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use kafka_protocol::protocol::{Decodable, Encodable};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use super::topic;
use crate::controller::founding;
use crate::controller::{
    Controller, ControllerConfig, Endpoint, Member, MetadataHandle, RaftService, Timing, start,
};
use crate::metadata::Decision;
use crate::peer::Address;
use crate::storage::disk::Disk;
use crate::storage::sim_disk::SimDisk;
use crate::types::{DirectoryId, NodeId};
use crate::wire::frame::{RequestFrame, decode, encode_response, parse_request};
use crate::wire::messages::{ApiVersionsResponse, ObserverPollResponse};

/// Nobody's connections come from here, so none can take the port of a node that is down.
const HOST: &str = "127.0.0.2";
/// Where each has its metadata.
const DIR: &str = "/meta";

/// What a listener does with the answers to observers: whether a message of this kind and size may go out.
pub type Gate = Arc<dyn Fn(&ObserverPollResponse) -> bool + Send + Sync>;

/// A quorum and whoever follows it.
pub struct Cluster {
    pub nodes: BTreeMap<i32, Node>,
    voters: BTreeMap<NodeId, Address>,
}

/// What survives of a node when it stops.
#[derive(Clone)]
pub struct Machine {
    id: NodeId,
    pub disk: SimDisk,
    address: Address,
    pub cluster_id: String,
    pub directory: DirectoryId,
}

pub struct Node {
    pub machine: Machine,
    pub handle: MetadataHandle,
    pub controller: Controller,
    listener: AbortHandle,
    is_deaf: Arc<AtomicBool>,
}

impl Machine {
    pub async fn new(id: i32) -> Machine {
        let listener = TcpListener::bind((HOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        Machine {
            id: NodeId(id),
            disk: SimDisk::new(),
            address: Address { host: HOST.to_owned(), port },
            cluster_id: "test".to_owned(),
            directory: DirectoryId::from_u128(1_000 + u128::try_from(id).unwrap()),
        }
    }

    pub fn with_empty_disk(self) -> Machine {
        Machine { disk: SimDisk::new(), ..self }
    }

    /// The machine as it is when it has just formatted itself, with an empty disk and a directory that nobody knows.
    pub fn formats_itself(self) -> Machine {
        let machine = self.without_disk();
        let disk: &dyn Disk = &machine.disk;
        disk.create_dir_all(Path::new(DIR)).unwrap();
        founding::begin(disk, Path::new(DIR)).unwrap();
        machine
    }

    pub fn id(&self) -> NodeId {
        self.id
    }

    pub fn address(&self) -> &Address {
        &self.address
    }

    fn member(address: &Address) -> Member {
        let endpoint =
            Endpoint { listener: "CONTROLLER".to_owned(), host: address.host.clone(), port: address.port };
        Member { directory_id: DirectoryId::nil(), endpoints: vec![endpoint] }
    }

    /// The machine as a voter of a dynamic quorum.
    pub fn voter(&self) -> Member {
        Member { directory_id: self.directory, ..Machine::member(&self.address) }
    }

    /// The same machine with nothing on it, formatted anew.
    pub fn without_disk(self) -> Machine {
        let directory = DirectoryId::from_u128(self.directory.as_u128() + 1_000);
        Machine { disk: SimDisk::new(), directory, ..self }
    }

    /// Starts the node with these voters in its configuration.
    async fn start_behind(&self, voters: &BTreeMap<NodeId, Address>, gate: Option<Gate>) -> Node {
        let alone = voters.len() == 1 && voters.contains_key(&self.id);
        let member = |(id, address): (&NodeId, &Address)| {
            (*id, if alone { self.voter() } else { Machine::member(address) })
        };
        let members = voters.iter().map(member).collect();
        self.start_as(members, gate, |config| config.addresses = voters.clone()).await
    }

    /// Starts the node as it was formatted with these voters, or with none; it looks for the quorum at `servers`.
    pub async fn start_formatted(&self, voters: &[&Machine], servers: &[&Machine]) -> Node {
        let members = voters.iter().map(|machine| (machine.id, machine.voter())).collect();
        let servers = servers.iter().map(|machine| machine.address.clone()).collect();
        self.start_as(members, None, |config| config.servers = servers).await
    }

    async fn start_as(
        &self,
        voters: BTreeMap<NodeId, Member>,
        gate: Option<Gate>,
        change: impl FnOnce(&mut ControllerConfig),
    ) -> Node {
        let dir = Path::new(DIR);
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        disk.create_dir_all(dir).unwrap();
        let is_voter = voters.contains_key(&self.id);
        let base = super::config(Arc::clone(&disk), dir);
        let mut config = ControllerConfig {
            node_id: self.id,
            cluster_id: self.cluster_id.clone(),
            voters,
            me: self.voter(),
            listener: Some("CONTROLLER".to_owned()),
            timing: Timing::default(),
            bootstrap_records: if is_voter { base.bootstrap_records.clone() } else { Vec::new() },
            ..base
        };
        change(&mut config);
        let (handle, controller) = start(config).await.unwrap();
        let socket = TcpListener::bind((HOST, self.address.port)).await.unwrap();
        let is_deaf = Arc::new(AtomicBool::new(false));
        let behind = Behind { service: controller.service(), gate, is_deaf: Arc::clone(&is_deaf) };
        let listener = tokio::spawn(listen(socket, behind)).abort_handle();
        Node { machine: self.clone(), handle, controller, listener, is_deaf }
    }
}

impl Node {
    /// Stops the node. To the others it looks as if its process had been killed.
    pub async fn kill(self) -> Machine {
        self.listener.abort();
        self.controller.shutdown().await;
        self.machine
    }

    /// From now on nothing that is said to this node is answered; it goes on speaking.
    pub fn deafen(&self) {
        self.is_deaf.store(true, Ordering::Relaxed);
    }

    /// Adds a topic through this node.
    pub async fn add_topic(&self, nth: u64) {
        self.handle.run(move |_| Decision::new(vec![topic(nth)], ())).await.unwrap();
    }

    /// Waits until this node's image has so many topics.
    pub async fn has_topics(&self, count: usize) {
        let mut images = self.handle.subscribe();
        images.wait_for(|image| image.topics.len() >= count).await.unwrap();
        assert_eq!(self.handle.image().topics.len(), count);
    }

    /// Waits until this node knows another leader than `old`.
    pub async fn leader_other_than(&self, old: Option<i32>) -> i32 {
        let mut leadership = self.handle.leadership();
        let old = old.map(NodeId);
        let now = leadership.wait_for(|now| now.leader.is_some() && now.leader != old).await.unwrap();
        now.leader.unwrap().0
    }
}

impl Cluster {
    /// A quorum of which nothing runs yet.
    pub fn of(voters: BTreeMap<NodeId, Address>) -> Cluster {
        Cluster { nodes: BTreeMap::new(), voters }
    }

    /// A quorum of these voters, all of them started and joined.
    pub async fn start(ids: &[i32]) -> Cluster {
        let mut machines = Vec::new();
        for id in ids {
            machines.push(Machine::new(*id).await);
        }
        let voters = machines.iter().map(|machine| (machine.id, machine.address.clone())).collect();
        let mut cluster = Cluster::of(voters);
        for machine in machines {
            cluster.add(&machine).await;
        }
        for node in cluster.nodes.values() {
            node.controller.join().await.unwrap();
        }
        cluster
    }

    /// Starts a voter, or a node that finds the quorum by the addresses of its voters.
    pub async fn add(&mut self, machine: &Machine) {
        self.add_behind(machine, None).await;
    }

    /// The same, with a listener that does not let everything through.
    pub async fn add_behind(&mut self, machine: &Machine, gate: Option<Gate>) {
        let node = machine.start_behind(&self.voters, gate).await;
        self.nodes.insert(machine.id.0, node);
    }

    /// Stops a node for good or for a while.
    pub async fn kill(&mut self, id: i32) -> Machine {
        self.nodes.remove(&id).unwrap().kill().await
    }

    pub fn any(&self) -> &Node {
        self.nodes.values().next().unwrap()
    }

    pub async fn stop(self) {
        for node in self.nodes.into_values() {
            node.kill().await;
        }
    }
}

/// What a listener leads to.
#[derive(Clone)]
struct Behind {
    service: RaftService,
    gate: Option<Gate>,
    is_deaf: Arc<AtomicBool>,
}

async fn listen(socket: TcpListener, behind: Behind) {
    // Connections end with their listener, as those of a process do.
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = socket.accept().await.unwrap();
        connections.spawn(serve(stream, behind.clone()));
    }
}

async fn serve(stream: TcpStream, behind: Behind) {
    let (mut reader, writer) = stream.into_split();
    let (answers, waiting) = mpsc::unbounded_channel();
    let mut handlers = JoinSet::new();
    handlers.spawn(write(writer, waiting));
    while let Ok(len) = reader.read_i32().await {
        let mut frame = vec![0; usize::try_from(len).unwrap()];
        if reader.read_exact(&mut frame).await.is_err() {
            return;
        }
        if behind.is_deaf.load(Ordering::Relaxed) {
            continue;
        }
        let frame = parse_request(Bytes::from(frame)).unwrap();
        let (behind, answers) = (behind.clone(), answers.clone());
        handlers.spawn(async move {
            // `None` closes the connection.
            drop(answers.send(handle(&behind, &frame).await));
        });
    }
}

async fn write(mut writer: OwnedWriteHalf, mut answers: mpsc::UnboundedReceiver<Option<Bytes>>) {
    while let Some(Some(answer)) = answers.recv().await {
        if writer.write_all(&answer).await.is_err() {
            return;
        }
    }
}

async fn handle(Behind { service, gate, .. }: &Behind, frame: &RequestFrame) -> Option<Bytes> {
    match frame.api.name {
        "ApiVersions" => answer(frame, &ApiVersionsResponse::default()),
        "RaftVote" => answer(frame, &service.vote(body(frame)).await),
        "RaftAppend" => answer(frame, &service.append(body(frame)).await),
        "RaftSnapshot" => answer(frame, &service.snapshot(body(frame)).await),
        "Propose" => answer(frame, &service.propose(body(frame)).await),
        "RaftFounding" => answer(frame, &service.founding(&body(frame))),
        "Confirm" => answer(frame, &service.confirm(body(frame)).await),
        "ObserverPoll" => {
            let response = service.observer_poll(body(frame)).await;
            let passes = gate.as_ref().is_none_or(|gate| gate(&response));
            passes.then(|| answer(frame, &response)).flatten()
        }
        other => panic!("{other}"),
    }
}

fn body<T: Decodable>(frame: &RequestFrame) -> T {
    decode(frame.body.clone(), frame.version).unwrap()
}

fn answer<T: Encodable + 'static>(to: &RequestFrame, response: &T) -> Option<Bytes> {
    Some(encode_response(to.api, to.version, to.correlation_id, response).unwrap().into_bytes())
}

/// Something that gates collect.
pub type Collected<T> = Arc<Mutex<Vec<T>>>;
