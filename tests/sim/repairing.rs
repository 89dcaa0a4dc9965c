//! How one process puts right what is damaged on its disks: the product's repairs and mending as a task, with what carries its
//! questions to other brokers and its words to the controllers replaced by events; and how another broker answers.
//!
//! Must not know what was damaged. Invariant: the task ends with its process.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot, watch};

use super::context::{Context, Event, Ms, ProcessEvent};
use super::network::{Body, Place};
use super::replication::code;
use super::tasks::Tasks;
use crate::broker::lifecycle::LifecycleError;
use crate::broker::mending::Mender;
use crate::broker::partitions::Partitions;
use crate::broker::repairs::{self, Repair, TellsCluster};
use crate::broker::serving::{self, ReadFrom, ReadRefused};
use crate::broker::transactions::{Carried, Peers};
use crate::broker::waiters::Bound;
use crate::metadata::Image;
use crate::types::{
    DirectoryId, ErrorCode, LeaderEpoch, MonotonicMs, NodeId, Offset, PartitionIndex, TopicIdPartition,
};
use crate::wire::messages::fetch_request::FetchRequest;
use crate::wire::messages::fetch_response::{FetchResponse, FetchableTopicResponse, PartitionData};
use crate::wire::messages::follower_fetch::FollowerFetchRequest;

/// Another broker does not answer in time after this.
const PEER_LIMIT_MS: Ms = 500;

/// What the controllers are to be told.
#[derive(Clone, Debug)]
pub enum Word {
    TakeBack(Vec<(TopicIdPartition, DirectoryId)>),
    GiveUp(Vec<TopicIdPartition>),
}

/// With those that were given up; `None`: it could not be told.
pub type Heard = Option<Vec<TopicIdPartition>>;

/// What is to be told, and who waits until it is.
pub type Telling = (Word, oneshot::Sender<Heard>);

#[derive(Clone)]
struct Cluster(mpsc::UnboundedSender<Telling>);

impl Cluster {
    async fn tell(&self, word: Word) -> Result<Vec<TopicIdPartition>, LifecycleError> {
        let (heard, answer) = oneshot::channel();
        let _ = self.0.send((word, heard));
        answer.await.ok().flatten().ok_or(LifecycleError::ShuttingDown)
    }
}

impl TellsCluster for Cluster {
    async fn take_back(&self, rebuilt: Vec<(TopicIdPartition, DirectoryId)>) -> Result<(), LifecycleError> {
        self.tell(Word::TakeBack(rebuilt)).await.map(drop)
    }

    async fn give_up(&self, damaged: Vec<TopicIdPartition>) -> Result<Vec<TopicIdPartition>, LifecycleError> {
        self.tell(Word::GiveUp(damaged)).await
    }
}

pub struct Repairing {
    me: NodeId,
    life: u64,
    tasks: Tasks,
    images: watch::Sender<Arc<Image>>,
    carried: mpsc::UnboundedReceiver<Carried>,
    calls: BTreeMap<u64, oneshot::Sender<Box<dyn Any + Send>>>,
    tellings: mpsc::UnboundedReceiver<Telling>,
    wakes_at: MonotonicMs,
}

/// What a turn leads to beside packets.
#[derive(Debug, Default)]
pub struct Turn {
    pub has_worked: bool,
    pub tellings: Vec<Telling>,
    /// The next turn is due then although nothing happens.
    pub wakes_in: Option<Ms>,
}

impl Repairing {
    /// `heard`: what the shards tell of their replicas.
    pub fn new(
        (me, life): (NodeId, u64),
        image: Arc<Image>,
        partitions: Partitions,
        heard: mpsc::UnboundedReceiver<Repair>,
    ) -> Repairing {
        let images = watch::Sender::new(image);
        let (carrier, carried) = mpsc::unbounded_channel();
        let (teller, tellings) = mpsc::unbounded_channel();
        let mender = Mender { peers: Peers::simulated(carrier), partitions };
        let mut tasks = Tasks::default();
        tasks.begin(repairs::run(me, Cluster(teller), mender, images.subscribe(), heard));
        let (calls, wakes_at) = (BTreeMap::new(), MonotonicMs(i64::MAX));
        Repairing { me, life, tasks, images, carried, calls, tellings, wakes_at }
    }

    pub fn learn(&self, image: &Arc<Image>) {
        self.images.send_replace(image.clone());
    }

    /// Has everything go on that can.
    pub fn turn(&mut self, context: &mut Context) -> Turn {
        let now = MonotonicMs(context.now);
        let mut turn = Turn { has_worked: self.tasks.run(now), ..Turn::default() };
        while let Ok(Carried { broker, request, answer }) = self.carried.try_recv() {
            let request: Box<FollowerFetchRequest> = request.downcast().expect("it asks for records");
            let call = context.unique();
            self.calls.insert(call, answer);
            let node = self.me.0;
            let body = Body::AskRecords { node, call, request: request.0 };
            context.send(Place::Node(node), Place::Node(broker.0), body);
            let what = ProcessEvent::PeerTimeout(call);
            context.after(PEER_LIMIT_MS, Event::Process { node, life: self.life, what });
        }
        while let Ok(telling) = self.tellings.try_recv() {
            turn.tellings.push(telling);
        }
        let wakes_at = self.tasks.wakes_at().unwrap_or(MonotonicMs(i64::MAX));
        if wakes_at < self.wakes_at || self.wakes_at <= now {
            self.wakes_at = wakes_at;
            turn.wakes_in = Some(wakes_at.0.saturating_sub(context.now)).filter(|ms| *ms < Ms::MAX / 2);
        }
        turn
    }

    /// Nobody has answered this call: its connection breaks.
    pub fn give_up(&mut self, call: u64) {
        self.calls.remove(&call);
    }

    pub fn told(&mut self, call: u64, response: FetchResponse) {
        if let Some(answer) = self.calls.remove(&call) {
            let _ = answer.send(Box::new(response));
        }
    }
}

/// What a broker answers to another one that asks for records in place of damaged ones, as it would to a consumer.
pub fn records(request: &FetchRequest, partitions: &Partitions) -> FetchResponse {
    let max_bytes = usize::try_from(request.max_bytes).unwrap_or(0);
    let mut response = FetchResponse::default();
    for topic in &request.topics {
        let mut answer = FetchableTopicResponse { topic_id: topic.topic_id, ..Default::default() };
        for wanted in &topic.partitions {
            let partition = PartitionIndex(wanted.partition);
            let id = TopicIdPartition { topic_id: topic.topic_id, partition };
            let epoch = LeaderEpoch(wanted.current_leader_epoch);
            let mut data = PartitionData { partition_index: wanted.partition, ..PartitionData::default() };
            match read(partitions, id, epoch, Offset(wanted.fetch_offset), max_bytes) {
                Ok(pieces) => data.records = Some(pieces.into()),
                Err(error) => data.error_code = error.code(),
            }
            answer.partitions.push(data);
        }
        response.responses.push(answer);
    }
    response
}

fn read(
    partitions: &Partitions,
    id: TopicIdPartition,
    epoch: LeaderEpoch,
    offset: Offset,
    max_bytes: usize,
) -> Result<Vec<Bytes>, ErrorCode> {
    let partition = partitions.get(&id).ok_or(ErrorCode::NotLeaderOrFollower)?;
    let (_, view) = serving::replica_view(&partition, epoch).map_err(code)?;
    let from = ReadFrom { offset, last_fetched_epoch: LeaderEpoch::UNKNOWN };
    match serving::read(&view, from, Bound::HighWatermark, max_bytes, true) {
        Ok(records) => Ok(records.pieces),
        Err(ReadRefused::OutOfRange) => Err(ErrorCode::OffsetOutOfRange),
        Err(ReadRefused::Io(error)) => {
            partition.note_unreadable(&error);
            Err(ErrorCode::KafkaStorageError)
        }
    }
}
