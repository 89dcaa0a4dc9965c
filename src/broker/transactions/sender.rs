//! Carries the markers of transactions that end to the leaders of their partitions, wherever those are and through every
//! change of them, and tells the coordinators what is written. Gets the producer ids that coordinators need by themselves.
//!
//! Decides nothing. Invariants: one task for each transaction that ends, which is over when all its partitions have their
//! marker or are gone, or its coordinator is no longer here; the next coordinator begins anew. One that begins anew in the same
//! term takes over from the task of before: in the first generation of transactions a marker that is written late would end
//! the next transaction.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::{oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};

use super::answers::Written;
use super::markers::{MarkerError, MarkerWrite, MarkerWriter};
use super::peers::Peers;
use super::post::Post;
use crate::broker::clock;
use crate::broker::coordinators::transactions::Effects;
use crate::broker::coordinators::{CoordinatorError, Coordinators};
use crate::broker::messages::ProduceError;
use crate::broker::partitions::{Partitions, Role};
use crate::broker::producer_ids::ProducerIds;
use crate::coordinator::Producer;
use crate::coordinator::transaction::{Command, Effect, Markers, Transactions};
use crate::metadata::Image;
use crate::storage::log::AppendError;
use crate::storage::log::producer_state::{MarkerEpoch, ProducerError};
use crate::types::{LeaderEpoch, NodeId, PartitionIndex, TopicIdPartition, TopicPartition};
use crate::wire::control::TxnResult;
use crate::wire::messages::write_txn_markers_request::{WritableTxnMarker, WritableTxnMarkerTopic};

/// How long one attempt may take.
const WRITE_LIMIT: Duration = Duration::from_secs(30);
/// The pause after an attempt that left something; each further one is twice as long, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// So many deliveries more than tasks are looked through for those that are over.
const KEPT_DELIVERIES: usize = 64;

/// What markers are carried with.
#[derive(Clone, Debug)]
pub struct MarkerSender {
    me: NodeId,
    images: watch::Receiver<Arc<Image>>,
    partitions: Partitions,
    transactions: Coordinators<Transactions>,
    writer: MarkerWriter,
    post: Post,
    producer_ids: ProducerIds,
}

impl MarkerSender {
    /// `peers` is for markers alone: a connection that is broken off has nothing else on it.
    pub fn new(
        (me, images, partitions): (NodeId, watch::Receiver<Arc<Image>>, Partitions),
        transactions: Coordinators<Transactions>,
        writer: MarkerWriter,
        peers: Peers,
        producer_ids: ProducerIds,
    ) -> MarkerSender {
        let post = Post::new(peers);
        MarkerSender { me, images, partitions, transactions, writer, post, producer_ids }
    }

    /// Does what coordinators want for as long as they live.
    pub async fn run(self, mut effects: Effects) {
        let sender = Arc::new(self);
        let mut tasks = JoinSet::new();
        let mut deliveries: HashMap<(PartitionIndex, String), Delivery> = HashMap::new();
        loop {
            tokio::select! {
                effect = effects.recv() => {
                    let Some((coordinator, effect)) = effect else { return };
                    let sender = Arc::clone(&sender);
                    match effect {
                        Effect::Write(markers) => {
                            let key = (coordinator, markers.transactional_id.clone());
                            let before = deliveries.remove(&key);
                            let work = async move { sender.write(coordinator, markers).await };
                            deliveries.insert(key, Delivery::begin(&mut tasks, before, work));
                        }
                        Effect::NeedsProducerId { transactional_id, producer } => {
                            let work = async move { sender.supply(coordinator, transactional_id, producer).await };
                            drop(tasks.spawn(work));
                        }
                    }
                }
                Some(_) = tasks.join_next() => {
                    if deliveries.len() > 2 * tasks.len() + KEPT_DELIVERIES {
                        deliveries.retain(|_, delivery| !delivery.task.is_finished());
                    }
                }
            }
        }
    }

    pub(crate) async fn write(&self, coordinator: PartitionIndex, markers: Markers) {
        if let Some(epoch) = self.term(coordinator) {
            self.deliver(coordinator, epoch, markers).await;
        }
    }

    pub(crate) async fn supply(
        &self,
        coordinator: PartitionIndex,
        transactional_id: String,
        producer: Producer,
    ) {
        match self.producer_ids.next().await {
            Ok(fresh) => {
                let fresh = Some(fresh);
                let command = Command::AbortTimedOut { transactional_id, producer, fresh };
                // Without an answer the coordinator is another one, which finds the same by itself.
                let _ = self.transactions.ask(coordinator, command).await.answer().await;
            }
            // The coordinator asks again when it looks the next time.
            Err(error) => tracing::warn!(%error, "no producer id could be had"),
        }
    }

    fn image(&self) -> Arc<Image> {
        self.images.borrow().clone()
    }

    /// The term in which this broker coordinates; `None` when it does not.
    fn term(&self, coordinator: PartitionIndex) -> Option<LeaderEpoch> {
        let image = self.image();
        let topic = image.topics.by_name(self.transactions.topic())?;
        let id = TopicIdPartition { topic_id: topic.id, partition: coordinator };
        let leadership = self.partitions.get(&id)?.leadership();
        (leadership.role == Role::Leader).then_some(leadership.leader_epoch)
    }

    async fn deliver(&self, coordinator: PartitionIndex, epoch: LeaderEpoch, markers: Markers) {
        let mut missing: BTreeSet<TopicPartition> = markers.partitions.iter().cloned().collect();
        let mut pause = FIRST_PAUSE;
        while self.term(coordinator) == Some(epoch) {
            let image = self.image();
            let (mut done, by_leader) = sort(&image, &missing);
            let mut is_fenced = false;
            let attempts = by_leader.iter().map(|(leader, partitions)| {
                self.attempt_while_led(&image, *leader, partitions, &markers, epoch)
            });
            for (partition, outcome) in join_all(attempts).await.into_iter().flatten() {
                match outcome {
                    Written::Done => done.push(partition),
                    Written::Later => {}
                    Written::Fenced => {
                        let id = &markers.transactional_id;
                        tracing::warn!("{partition} refuses the marker of transaction {id}: it is fenced");
                        is_fenced = true;
                    }
                }
            }
            if !done.is_empty() {
                for partition in &done {
                    missing.remove(partition);
                }
                let Markers { transactional_id, producer, started, .. } = markers.clone();
                let command =
                    Command::MarkersWritten { transactional_id, producer, started, partitions: done };
                match self.transactions.ask(coordinator, command).await.answer().await {
                    // The coordinator has taken note, and writes it down as soon as its log can be written.
                    Ok(_) | Err(CoordinatorError::TimedOut) => {}
                    // Another coordinator, or the same one that begins anew, has them written once more.
                    Err(_) => return,
                }
            }
            if missing.is_empty() || is_fenced {
                return;
            }
            clock::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// An attempt, which is given up when none of the partitions is led there any more: a broker that hangs answers late.
    async fn attempt_while_led(
        &self,
        image: &Image,
        leader: NodeId,
        partitions: &[TopicPartition],
        markers: &Markers,
        epoch: LeaderEpoch,
    ) -> Vec<(TopicPartition, Written)> {
        tokio::select! {
            biased;
            written = self.attempt(image, leader, partitions, markers, epoch) => written,
            () = led_elsewhere(self.images.clone(), leader, partitions) => Vec::new(),
        }
    }

    async fn attempt(
        &self,
        image: &Image,
        leader: NodeId,
        partitions: &[TopicPartition],
        markers: &Markers,
        epoch: LeaderEpoch,
    ) -> Vec<(TopicPartition, Written)> {
        if leader == self.me {
            let marker_epoch =
                if markers.version.raises_epoch() { MarkerEpoch::Later } else { MarkerEpoch::SameOrLater };
            let write = |partition: &TopicPartition| MarkerWrite {
                partition: partition.clone(),
                producer: markers.producer,
                result: markers.result,
                coordinator_epoch: epoch.0,
                marker_epoch,
            };
            let writes: Vec<_> = partitions.iter().map(write).collect();
            let limit = i64::try_from(WRITE_LIMIT.as_millis()).unwrap_or(i64::MAX);
            let answers = self.writer.write(image, &writes, limit).await.answers().await;
            return partitions.iter().cloned().zip(answers.iter().map(outcome)).collect();
        }
        self.post.send(leader, marker(partitions, markers, epoch)).await
    }
}

/// A transaction's markers under way.
#[derive(Debug)]
struct Delivery {
    task: AbortHandle,
    /// Closed when the task is over, also when it was ended from outside.
    over: oneshot::Receiver<Infallible>,
}

impl Delivery {
    /// Starts `work`, which has nothing beside it of the delivery `before`.
    fn begin(
        tasks: &mut JoinSet<()>,
        before: Option<Delivery>,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> Delivery {
        let (alive, over) = oneshot::channel();
        let task = tasks.spawn(async move {
            let _alive: oneshot::Sender<Infallible> = alive;
            if let Some(Delivery { task, over }) = before {
                task.abort();
                // Nothing is ever sent: this waits for the other end to go.
                drop(over.await);
            }
            work.await;
        });
        Delivery { task, over }
    }
}

/// Waits until `leader` leads none of the partitions.
async fn led_elsewhere(
    mut images: watch::Receiver<Arc<Image>>,
    leader: NodeId,
    partitions: &[TopicPartition],
) {
    let leads = |image: &Image, name: &TopicPartition| {
        let topic = image.topics.by_name(&name.topic);
        topic.and_then(|topic| topic.partition(name.partition)).is_some_and(|known| known.leader == leader)
    };
    let moved = |image: &Arc<Image>| !partitions.iter().any(|name| leads(image, name));
    if images.wait_for(moved).await.is_err() {
        // Nothing will be known any more: the node ends.
        std::future::pending::<()>().await;
    }
}

/// The partitions that are gone, and the others by their leader. Those without one wait.
fn sort(
    image: &Image,
    missing: &BTreeSet<TopicPartition>,
) -> (Vec<TopicPartition>, BTreeMap<NodeId, Vec<TopicPartition>>) {
    let (mut gone, mut by_leader) = (Vec::new(), BTreeMap::<NodeId, Vec<TopicPartition>>::new());
    for name in missing {
        let topic = image.topics.by_name(&name.topic);
        match topic.and_then(|topic| topic.partition(name.partition)) {
            None => gone.push(name.clone()),
            Some(partition) if partition.leader == NodeId::NONE => {}
            Some(partition) => by_leader.entry(partition.leader).or_default().push(name.clone()),
        }
    }
    (gone, by_leader)
}

fn outcome(answer: &Result<(), MarkerError>) -> Written {
    match answer {
        Ok(()) => Written::Done,
        Err(MarkerError::Append(ProduceError::Append(AppendError::Producer(
            ProducerError::Fenced { .. } | ProducerError::CoordinatorFenced { .. },
        ))))
        | Err(MarkerError::Coordinator(CoordinatorError::ProducerFenced | CoordinatorError::MarkerFenced)) => {
            Written::Fenced
        }
        Err(_) => Written::Later,
    }
}

fn marker(partitions: &[TopicPartition], markers: &Markers, epoch: LeaderEpoch) -> WritableTxnMarker {
    let mut topics: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for partition in partitions {
        topics.entry(&partition.topic).or_default().push(partition.partition.0);
    }
    let topics = topics.into_iter().map(|(name, partition_indexes)| WritableTxnMarkerTopic {
        name: name.to_owned().into(),
        partition_indexes,
        ..Default::default()
    });
    WritableTxnMarker {
        producer_id: markers.producer.id.0,
        producer_epoch: markers.producer.epoch.0,
        transaction_result: markers.result == TxnResult::Commit,
        topics: topics.collect(),
        coordinator_epoch: epoch.0,
        transaction_version: i8::try_from(markers.version.0).unwrap_or(0),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::Record;
    use crate::types::Uuid;
    use crate::wire::messages::metadata::{PartitionRecord, TopicRecord};
    use futures_util::FutureExt as _;
    use std::pin::pin;
    use std::sync::Mutex;

    #[tokio::test]
    async fn a_delivery_that_takes_over_begins_when_the_one_before_is_over() {
        let (mut tasks, said) = (JoinSet::new(), Arc::new(Mutex::new(Vec::new())));
        let say = |words: &'static str| {
            let said = Arc::clone(&said);
            move || said.lock().unwrap().push(words)
        };
        let (started, has_started) = oneshot::channel::<()>();
        let (first_says, ends) = (say("first"), say("the first is dropped"));
        let first = Delivery::begin(&mut tasks, None, async move {
            let _guard = OnDrop(ends);
            started.send(()).unwrap();
            std::future::pending::<()>().await;
            first_says();
        });
        has_started.await.unwrap();
        let second_says = say("second");
        let second = Delivery::begin(&mut tasks, Some(first), async move { second_says() });
        assert!(second.over.await.is_err());
        assert_eq!(*said.lock().unwrap(), ["the first is dropped", "second"]);
    }

    /// An image with the partitions of a topic, each with this leader.
    fn image(leaders: &[i32]) -> Arc<Image> {
        let topic_id = Uuid::from_u128(1);
        let mut image = Image::default();
        image.apply(&Record::from(TopicRecord { name: "t".into(), topic_id, ..Default::default() }));
        for (partition_id, leader) in (0..).zip(leaders) {
            let replicas = vec![1, 2];
            let isr = replicas.clone();
            let record = PartitionRecord {
                partition_id,
                topic_id,
                replicas,
                isr,
                leader: *leader,
                ..Default::default()
            };
            image.apply(&Record::from(record));
        }
        Arc::new(image)
    }

    #[test]
    fn an_attempt_is_given_up_when_its_broker_leads_none_of_the_partitions() {
        let (publish, images) = watch::channel(image(&[1, 1]));
        let name = |partition| TopicPartition { topic: "t".into(), partition: PartitionIndex(partition) };
        let names = [name(0), name(1)];
        let mut given_up = pin!(led_elsewhere(images, NodeId(1), &names));
        for (leaders, expected) in [(vec![1, 1], false), (vec![2, 1], false), (vec![2, -1], true)] {
            publish.send_replace(image(&leaders));
            assert_eq!(given_up.as_mut().now_or_never().is_some(), expected, "{leaders:?}");
        }
        assert!(
            led_elsewhere(watch::channel(image(&[])).1, NodeId(1), &names).now_or_never().is_some(),
            "it is gone"
        );
    }

    struct OnDrop<F: FnMut()>(F);

    impl<F: FnMut()> Drop for OnDrop<F> {
        fn drop(&mut self) {
            (self.0)();
        }
    }
}
