//! Markers on their way to other brokers. Those for one broker that wait at the same time go in one request, as Kafka's
//! coordinators send them: many transactions end at once, and each request costs both sides more than one more marker in it.
//!
//! A few requests are under way to a broker at a time, and what comes meanwhile waits for the next; but not for long, so that it
//! is written although a partition with slow followers holds back the answers of those before. Whoever waits longest sees to a
//! request that carries what the others have left, and which goes on without it. Must not know transactions. Invariants: a marker
//! of which the sender has been dropped is not written after it, but for one that is on the wire; what goes to a broker keeps its
//! order; a request is given up when nobody waits for its answer.

use std::collections::{HashMap, HashSet};
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::answers::{Written, written};
use super::peers::Peers;
use crate::broker::clock;
use crate::types::{NodeId, TopicPartition};
use crate::wire::messages::WriteTxnMarkersRequest;
use crate::wire::messages::write_txn_markers_request::WritableTxnMarker;

/// How long a request may take: longer than a broker waits for the followers of a partition, so that one partition whose followers
/// are slow costs none of the others its answer.
const LIMIT: Duration = Duration::from_secs(40);
/// So many requests are under way to one broker ...
const TURNS: usize = 2;
/// ... and more only for markers that have waited so long.
const PATIENCE: Duration = Duration::from_millis(50);
/// The most partitions of one request, but for a single transaction that has more.
const PARTITIONS_MAX: usize = 10_000;

/// What became of the marker, by partition. Of partitions that are missing nothing is known.
pub(super) type Answer = Vec<(TopicPartition, Written)>;

/// Sends markers to brokers. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Post {
    peers: Peers,
    lanes: Arc<Mutex<HashMap<NodeId, Arc<Lane>>>>,
}

/// The way to one broker.
#[derive(Debug)]
struct Lane {
    turns: Arc<Semaphore>,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    next: u64,
    letters: Vec<Letter>,
}

/// The marker of one transaction for the partitions of one broker.
#[derive(Debug)]
struct Letter {
    number: u64,
    marker: WritableTxnMarker,
    answer: oneshot::Sender<Answer>,
}

impl Post {
    pub fn new(peers: Peers) -> Post {
        Post { peers, lanes: Arc::default() }
    }

    /// Sends a marker, and waits until its partitions have it. Nothing is known when the broker has not answered.
    pub async fn send(&self, broker: NodeId, marker: WritableTxnMarker) -> Answer {
        let lane = Arc::clone(locked(&self.lanes).entry(broker).or_default());
        let (number, mut answered) = lane.put(marker);
        // Nobody carries it after this sender is gone.
        let waits = Waits { lane: &lane, number };
        let seen_to = async {
            let turn = lane.turn().await;
            let carried = carry(self.peers.clone(), broker, Arc::clone(&lane), number, turn);
            see_through(carried).await;
        };
        tokio::select! {
            biased;
            answer = &mut answered => return answer.unwrap_or_default(),
            () = seen_to => {}
        }
        // If it still lies there, the broker was not reached; else another request has it.
        drop(waits);
        answered.await.unwrap_or_default()
    }
}

/// Does `work` to its end, also when nobody waits for it any more; in a simulation, which has no tasks for that, as long as
/// somebody does.
async fn see_through(work: impl Future<Output = ()> + Send + 'static) {
    match Handle::try_current() {
        Ok(runtime) => drop(runtime.spawn(work).await),
        Err(_) => work.await,
    }
}

/// Sends everything that waits, unless somebody else has taken this letter along.
async fn carry(
    peers: Peers,
    broker: NodeId,
    lane: Arc<Lane>,
    number: u64,
    _turn: Option<OwnedSemaphorePermit>,
) {
    let letters = Mutex::new(Vec::new());
    // Taken when the connection is there: a sender that is dropped while it is dialled wants nothing sent.
    let take = || {
        let taken = lane.take(number);
        let markers: Vec<_> = taken.iter().map(|letter| letter.marker.clone()).collect();
        *locked(&letters) = taken;
        (!markers.is_empty()).then(|| WriteTxnMarkersRequest { markers, ..Default::default() })
    };
    let answer = tokio::select! {
        biased;
        answer = peers.call_with(broker, take, LIMIT) => answer,
        () = all_have_left(&letters) => {
            // The next call must not wait behind what has no answer.
            peers.disconnect(broker);
            return;
        }
    };
    match answer {
        Ok(None) => {}
        Ok(Some(response)) => {
            let results = response.markers.iter().map(|result| (result.producer_id, result));
            let results: HashMap<_, _> = results.collect();
            for Letter { marker, answer, .. } in locked(&letters).drain(..) {
                let answers = results.get(&marker.producer_id).map(|result| written(result));
                // Nobody may wait for it any more.
                let _ = answer.send(answers.unwrap_or_default());
            }
        }
        Err(error) => tracing::debug!(%broker, "markers are not written yet: {error}"),
    }
}

/// Resolves when nobody waits for the answers to these letters any more, once there are some. Polled after each step of what
/// fills them in.
async fn all_have_left(letters: &Mutex<Vec<Letter>>) {
    poll_fn(|context| {
        let mut letters = locked(letters);
        // To find that somebody has left costs of the task's budget, and without any nobody seems to have left.
        let waits = |letter: &mut Letter| {
            !letter.answer.is_closed() && letter.answer.poll_closed(context).is_pending()
        };
        // Each is to wake this task.
        let waiting = letters.iter_mut().map(waits).filter(|waits| *waits).count();
        if letters.is_empty() || waiting > 0 { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
}

/// A letter that is taken back when its sender is dropped, if nobody has taken it along.
struct Waits<'a> {
    lane: &'a Lane,
    number: u64,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        locked(&self.lane.waiting).letters.retain(|letter| letter.number != self.number);
    }
}

impl Default for Lane {
    fn default() -> Lane {
        Lane { turns: Arc::new(Semaphore::new(TURNS)), waiting: Mutex::default() }
    }
}

impl Lane {
    fn put(&self, marker: WritableTxnMarker) -> (u64, oneshot::Receiver<Answer>) {
        let (answer, answered) = oneshot::channel();
        let mut waiting = locked(&self.waiting);
        let number = waiting.next;
        waiting.next += 1;
        waiting.letters.push(Letter { number, marker, answer });
        (number, answered)
    }

    /// Waits for a turn, with patience.
    async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        tokio::select! {
            biased;
            turn = Arc::clone(&self.turns).acquire_owned() => turn.ok(),
            () = clock::sleep(PATIENCE) => None,
        }
    }

    /// What waits, if this letter is still among it: that one, and of the others the oldest first, one for each producer.
    fn take(&self, number: u64) -> Vec<Letter> {
        let mut waiting = locked(&self.waiting);
        // Those of one producer keep their order: an older one of the same goes in the place of this one.
        let own = |letter: &Letter| letter.number == number;
        let Some(producer) =
            waiting.letters.iter().find(|letter| own(letter)).map(|own| own.marker.producer_id)
        else {
            return Vec::new();
        };
        let first = waiting.letters.iter().position(|letter| letter.marker.producer_id == producer);
        if let Some(first) = first {
            let first = waiting.letters.remove(first);
            waiting.letters.insert(0, first);
        }
        let (mut producers, mut count) = (HashSet::new(), 0);
        let goes = |letter: &mut Letter| {
            let size: usize = letter.marker.topics.iter().map(|topic| topic.partition_indexes.len()).sum();
            let fits = count == 0 || count + size <= PARTITIONS_MAX;
            // Answers are told apart by it.
            let goes = fits && producers.insert(letter.marker.producer_id);
            count += if goes { size.max(1) } else { 0 };
            goes
        };
        waiting.letters.extract_if(.., goes).collect()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;

    use futures_util::FutureExt as _;
    use tokio::sync::mpsc;

    use super::super::peers::Carried;
    use super::*;
    use crate::broker::clock::Now;
    use crate::types::MonotonicMs;
    use crate::wire::messages::write_txn_markers_request::WritableTxnMarkerTopic;
    use crate::wire::messages::write_txn_markers_response::{
        WritableTxnMarkerPartitionResult, WritableTxnMarkerResult, WritableTxnMarkerTopicResult,
        WriteTxnMarkersResponse,
    };

    const BROKER: NodeId = NodeId(2);

    type Sending = Pin<Box<dyn Future<Output = Answer> + Send>>;

    struct Rig {
        post: Post,
        carried: mpsc::UnboundedReceiver<Carried>,
    }

    fn marker(producer_id: i64) -> WritableTxnMarker {
        let topic =
            WritableTxnMarkerTopic { name: "t".into(), partition_indexes: vec![0], ..Default::default() };
        WritableTxnMarker { producer_id, topics: vec![topic], ..Default::default() }
    }

    impl Rig {
        fn new() -> Rig {
            // No time passes by itself.
            clock::simulate(Some(Now::default()));
            let (carrier, carried) = mpsc::unbounded_channel();
            Rig { post: Post::new(Peers::simulated(carrier)), carried }
        }

        /// Begins to send a marker for partition 0 of a topic.
        fn send(&self, producer_id: i64) -> Sending {
            let post = self.post.clone();
            let mut sending: Sending = Box::pin(async move { post.send(BROKER, marker(producer_id)).await });
            assert!(sending.as_mut().now_or_never().is_none());
            sending
        }

        /// The next request on the wire, by its producers.
        fn request(&mut self) -> Option<(Vec<i64>, Carried)> {
            let carried = self.carried.try_recv().ok()?;
            let request = carried.request.downcast_ref::<WriteTxnMarkersRequest>().unwrap();
            Some((request.markers.iter().map(|marker| marker.producer_id).collect(), carried))
        }
    }

    impl Drop for Rig {
        fn drop(&mut self) {
            clock::simulate(None);
        }
    }

    /// The broker has written all but the marker of one producer, which it fences.
    fn answer((producers, carried): (Vec<i64>, Carried), fenced: i64) {
        let result = |&producer_id: &i64| {
            let error_code = if producer_id == fenced { 47 } else { 0 };
            let partition = WritableTxnMarkerPartitionResult { error_code, ..Default::default() };
            let partitions = vec![partition];
            let topics =
                vec![WritableTxnMarkerTopicResult { name: "t".into(), partitions, ..Default::default() }];
            WritableTxnMarkerResult { producer_id, topics, ..Default::default() }
        };
        let markers = producers.iter().rev().map(result).collect();
        carried.answer.send(Box::new(WriteTxnMarkersResponse { markers, ..Default::default() })).unwrap();
    }

    fn outcome(sending: &mut Sending) -> Option<Vec<Written>> {
        let answer = sending.as_mut().now_or_never()?;
        Some(answer.into_iter().map(|(_, written)| written).collect())
    }

    #[test]
    fn what_waits_goes_together_and_each_gets_its_own_answer() {
        let mut rig = Rig::new();
        let mut sending: Vec<Sending> = (0..6).map(|producer| rig.send(producer)).collect();
        let first = rig.request().unwrap();
        let second = rig.request().unwrap();
        assert_eq!((&first.0, &second.0), (&vec![0], &vec![1]));
        assert!(rig.request().is_none());
        // One whose sender is gone is not sent, and another one of the same producer goes by itself.
        drop(sending.remove(3));
        let mut again = rig.send(5);
        answer(first, -1);
        assert_eq!(outcome(&mut sending[0]), Some(vec![Written::Done]));
        assert!(sending[2..].iter_mut().all(|sending| outcome(sending).is_none()));
        let third = rig.request().unwrap();
        assert_eq!(third.0, [2, 4, 5]);
        answer(third, 4);
        assert!(outcome(&mut again).is_none());
        let outcomes: Vec<_> = sending[2..].iter_mut().map(outcome).collect();
        assert_eq!(outcomes, [Written::Done, Written::Fenced, Written::Done].map(|of| Some(vec![of])));
        assert!(outcome(&mut again).is_none());
        assert_eq!(rig.request().unwrap().0, [5]);
    }

    #[test]
    fn nothing_is_known_when_the_request_or_its_carrier_is_lost() {
        let mut rig = Rig::new();
        let mut busy = [rig.send(0), rig.send(1)];
        let (first, second) = (rig.request().unwrap(), rig.request().unwrap());
        let mut waiting = [rig.send(2), rig.send(3)];
        // The connection breaks.
        drop(first);
        assert_eq!(outcome(&mut busy[0]), Some(vec![]));
        let [carrier, other] = &mut waiting;
        assert!(outcome(carrier).is_none() && outcome(other).is_none());
        assert_eq!(rig.request().unwrap().0, [2, 3]);
        let [carrier, mut other] = waiting;
        drop(carrier);
        assert_eq!(outcome(&mut other), Some(vec![]));
        drop((busy, second));
        // Whatever happened, the way is free.
        let mut after = [rig.send(4), rig.send(5)];
        for sending in &mut after {
            let request = rig.request().unwrap();
            answer(request, -1);
            assert_eq!(outcome(sending), Some(vec![Written::Done]));
        }
    }

    #[test]
    fn a_broker_that_is_not_reached_is_tried_again_by_whoever_sends() {
        let mut rig = Rig::new();
        rig.carried.close();
        for producer in [0, 1, 1] {
            let sending = rig.post.send(BROKER, marker(producer)).now_or_never();
            assert_eq!(sending.map(|answer| answer.len()), Some(0));
        }
        assert!(locked(&locked(&rig.post.lanes)[&BROKER].waiting).letters.is_empty());
    }

    #[tokio::test]
    async fn a_request_goes_on_as_long_as_somebody_waits_for_its_answer() {
        async fn step() {
            for _ in 0..8 {
                tokio::task::yield_now().await;
            }
        }
        let mut rig = Rig::new();
        let _busy = rig.send(0);
        step().await;
        let first = rig.request().unwrap();
        let _too = rig.send(1);
        step().await;
        let _second = rig.request().unwrap();
        let [mut carrier, mut other, mut more] = [rig.send(2), rig.send(3), rig.send(4)];
        answer(first, -1);
        step().await;
        for sending in [&mut carrier, &mut other, &mut more] {
            assert!(outcome(sending).is_none());
        }
        step().await;
        let mut request = rig.request().unwrap();
        assert_eq!(request.0, [2, 3, 4]);
        drop((carrier, more));
        step().await;
        assert!(!request.1.answer.is_closed());
        drop(other);
        step().await;
        assert!(request.1.answer.is_closed());

        // The same, answered.
        let [carrier, mut other] = [rig.send(5), rig.send(6)];
        step().await;
        request = rig.request().unwrap();
        assert_eq!(request.0, [5, 6]);
        drop(carrier);
        step().await;
        answer(request, -1);
        step().await;
        assert_eq!(outcome(&mut other), Some(vec![Written::Done]));
    }

    #[tokio::test]
    async fn a_request_of_very_many_is_given_up_when_all_have_left() {
        let mut rig = Rig::new();
        let mut sending: Vec<Sending> = (0..300).map(|producer| rig.send(producer)).collect();
        while rig.carried.is_empty() {
            tokio::task::yield_now().await;
        }
        let (producers, request) = rig.request().unwrap();
        assert_eq!(producers.len(), 300);
        drop(sending.split_off(1));
        for _ in 0..8 {
            tokio::task::yield_now().await;
        }
        assert!(!request.answer.is_closed());
        drop(sending);
        let mut request = request;
        request.answer.closed().await;
    }

    #[test]
    fn nobody_waits_long_for_the_markers_of_others() {
        let mut rig = Rig::new();
        let _busy = [rig.send(0), rig.send(1)];
        let _stuck = (rig.request().unwrap(), rig.request().unwrap());
        let mut waiting = rig.send(2);
        let pass = |ms| clock::simulate(Some(Now { monotonic: MonotonicMs(ms), ..Now::default() }));
        pass(49);
        assert!(outcome(&mut waiting).is_none() && rig.request().is_none());
        pass(50);
        assert!(outcome(&mut waiting).is_none());
        answer(rig.request().unwrap(), -1);
        assert_eq!(outcome(&mut waiting), Some(vec![Written::Done]));
    }
}
