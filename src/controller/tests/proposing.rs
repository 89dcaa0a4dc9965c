//! The proposer against a log that misbehaves as a real one rarely does.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{oneshot, watch};

use super::{topic, topics_in};
use crate::controller::deciding::{self, ProposeError, Waiting};
use crate::controller::peers::Peers;
use crate::controller::proposer::{self, MetadataHandle, MetadataLog};
use crate::controller::quorum::QuorumView;
use crate::controller::raft_types::{Applied, Batch};
use crate::controller::rpc::Identity;
use crate::controller::state_machine::Published;
use crate::metadata::{Decision, Image, Record};
use crate::types::{DirectoryId, NodeId};

/// How the log takes a batch.
enum Answer {
    /// The image moves on by a record of somebody else, and the batch is stale.
    Overtaken(Box<Record>),
    Stale,
    /// The batch takes effect, and nobody says so.
    TakenAndLost,
    /// Another controller is elected, which is offered the batch the next time.
    Deposed,
    Fail(ProposeError),
    Never,
}

/// A log that applies batches to the image, unless told otherwise.
struct FakeLog {
    published: Arc<Published>,
    answers: Mutex<VecDeque<Answer>>,
    /// Records of somebody else that the leader has and this node has not when a version is asked for, one each time.
    elsewhere: Arc<Mutex<VecDeque<Record>>>,
    leads: bool,
    term: Arc<AtomicU64>,
}

impl FakeLog {
    fn apply(&self, records: &[Record]) -> Applied {
        let mut image = Image::clone(&self.published.image());
        records.iter().for_each(|record| image.apply(record));
        let version = image.version.0;
        self.published.publish(image);
        Applied::Records { version }
    }
}

fn records_of(batch: &Batch) -> Vec<Record> {
    let records = batch.split().unwrap();
    records.into_iter().map(|bytes| Record::decode(bytes).unwrap().0).collect()
}

impl MetadataLog for FakeLog {
    async fn propose(&self, batch: Batch) -> Result<Applied, ProposeError> {
        let answer = self.answers.lock().unwrap().pop_front();
        let version = self.published.image().version.0;
        let term = self.term.load(Ordering::Relaxed);
        match answer {
            None if batch.base != version => Ok(Applied::Stale { version }),
            None if batch.term.is_some_and(|of| of != term) => Ok(Applied::Stale { version }),
            None => Ok(self.apply(&records_of(&batch))),
            Some(Answer::TakenAndLost) => {
                self.published.note_taken(&batch);
                self.apply(&records_of(&batch));
                Err(ProposeError::NotLeader { leader: None })
            }
            Some(Answer::Overtaken(record)) => {
                self.apply(&[*record]);
                Ok(Applied::Stale { version: version + 1 })
            }
            Some(Answer::Deposed) => {
                self.term.store(term + 1, Ordering::Relaxed);
                Err(ProposeError::NotLeader { leader: None })
            }
            Some(Answer::Stale) => Ok(Applied::Stale { version }),
            Some(Answer::Fail(error)) => Err(error),
            Some(Answer::Never) => std::future::pending().await,
        }
    }

    async fn confirm(&self) -> Result<u64, ProposeError> {
        let version = self.published.image().version.0;
        let next = self.elsewhere.lock().unwrap().pop_front();
        if let Some(record) = next {
            let published = Arc::clone(&self.published);
            tokio::spawn(async move {
                // It arrives here later than the leader's word of it.
                tokio::task::yield_now().await;
                let mut image = Image::clone(&published.image());
                image.apply(&record);
                published.publish(image);
            });
            return Ok(version + 1);
        }
        if self.leads { Ok(version) } else { Err(ProposeError::NotLeader { leader: None }) }
    }

    async fn changes(&self) {
        tokio::task::yield_now().await;
    }
}

/// A handle on such a log; the node stops when the sender is dropped.
fn proposer(answers: Vec<Answer>, leads: bool) -> (MetadataHandle, oneshot::Sender<()>) {
    proposer_behind(answers, leads, Arc::default())
}

/// The same, with what the leader has and this node has not when it asks.
fn proposer_behind(
    answers: Vec<Answer>,
    leads: bool,
    elsewhere: Arc<Mutex<VecDeque<Record>>>,
) -> (MetadataHandle, oneshot::Sender<()>) {
    proposer_in(Arc::default(), answers, leads, elsewhere)
}

/// The same with the term, which elections move on.
fn proposer_in(
    term: Arc<AtomicU64>,
    answers: Vec<Answer>,
    leads: bool,
    elsewhere: Arc<Mutex<VecDeque<Record>>>,
) -> (MetadataHandle, oneshot::Sender<()>) {
    let published = Arc::new(Published::new(Image::default()));
    let answers = Mutex::new(answers.into());
    let log = FakeLog { published: Arc::clone(&published), answers, elsewhere, leads, term };
    let (_, metrics) = watch::channel(openraft::RaftMetrics::new_initial(1));
    let (stop, stopped) = oneshot::channel();
    let me = Identity { cluster_id: String::new(), node: NodeId(1), directory: DirectoryId::nil() };
    let (view, _) = QuorumView::new(metrics, Arc::new(Peers::new(me, BTreeMap::new(), None)));
    let (handle, task) = proposer::proposer(log, published, view, stopped);
    tokio::spawn(task);
    (handle, stop)
}

#[tokio::test]
async fn a_stale_batch_is_decided_again_on_the_newer_image() {
    let (handle, _stop) = proposer(vec![Answer::Overtaken(Box::new(topic(9)))], true);
    let reply = handle.run(|image| {
        let seen = topics_in(image);
        Decision::new(vec![topic(seen.len() as u64)], seen)
    });
    assert_eq!(reply.await.unwrap(), ["t9"]);
    assert_eq!(topics_in(&handle.image()), ["t1", "t9"]);
}

#[tokio::test]
async fn a_decision_that_becomes_needless_is_not_made_twice() {
    let (handle, _stop) = proposer(vec![Answer::Overtaken(Box::new(topic(1)))], true);
    let create = |image: &Image| {
        if image.topics.by_name("t1").is_some() {
            Decision::reply("exists")
        } else {
            Decision::new(vec![topic(1)], "created")
        }
    };
    assert_eq!(handle.run(create).await, Ok("exists"));
    assert_eq!(handle.image().version.0, 1);
}

#[tokio::test]
async fn a_stale_batch_is_decided_again_as_often_as_it_takes() {
    let (handle, _stop) = proposer((0..50).map(|_| Answer::Stale).collect(), true);
    assert_eq!(handle.run(|_| Decision::new(vec![topic(1)], ())).await, Ok(()));
    assert_eq!(topics_in(&handle.image()), ["t1"]);
}

/// The image has not moved, so its version says nothing.
#[tokio::test]
async fn what_a_controller_decides_by_what_it_knows_is_not_taken_from_it_by_the_next() {
    let term = Arc::new(AtomicU64::new(4));
    let (handle, _stop) = proposer_in(Arc::clone(&term), vec![Answer::Deposed], true, Arc::default());
    let of_term = |nth: u64| {
        let now = Arc::clone(&term);
        move |_: &Image| {
            let is_in_office = now.load(Ordering::Relaxed) == 4;
            Decision::new(if is_in_office { vec![topic(nth)] } else { Vec::new() }, is_in_office)
        }
    };
    assert_eq!(handle.run_in_term(4, of_term(1)).await, Ok(false));
    assert_eq!(topics_in(&handle.image()), Vec::<String>::new());
    // Nor does it hold up what holds in any term.
    let (late, any) =
        tokio::join!(handle.run_in_term(4, of_term(2)), handle.run(|_| Decision::new(vec![topic(3)], ())));
    assert_eq!((late, any), (Ok(false), Ok(())));
    assert_eq!(topics_in(&handle.image()), ["t3"]);
}

#[tokio::test]
async fn what_goes_by_the_image_alone_is_taken_by_whoever_leads_next() {
    let (handle, _stop) = proposer(vec![Answer::Deposed, Answer::Deposed], true);
    let mut times = 0;
    let reply = handle.run(move |_| {
        times += 1;
        Decision::new(vec![topic(1)], times)
    });
    assert_eq!(reply.await, Ok(1), "it is not decided again for that");
    assert_eq!(topics_in(&handle.image()), ["t1"]);
}

#[tokio::test]
async fn a_decision_without_records_is_made_again_when_the_image_was_old() {
    let elsewhere = Arc::new(Mutex::new(VecDeque::from([topic(1)])));
    let (handle, _stop) = proposer_behind(Vec::new(), true, elsewhere);
    // Another node has answered that it made t1.
    let exists = |image: &Image| Decision::reply(image.topics.by_name("t1").is_some());
    assert_eq!(handle.run(exists).await, Ok(true));
}

#[tokio::test]
async fn a_decision_that_needed_no_records_on_an_old_image_makes_them_on_the_new_one() {
    let elsewhere = Arc::new(Mutex::new(VecDeque::from([topic(1)])));
    let (handle, _stop) = proposer_behind(Vec::new(), true, elsewhere);
    let follow = |image: &Image| {
        let is_due = image.topics.by_name("t1").is_some() && image.topics.by_name("t2").is_none();
        Decision::new(if is_due { vec![topic(2)] } else { Vec::new() }, is_due)
    };
    assert_eq!(handle.run(follow).await, Ok(true));
    assert_eq!(topics_in(&handle.image()), ["t1", "t2"]);
}

#[tokio::test]
async fn one_confirmation_is_enough_however_fast_the_image_moves() {
    let elsewhere = Arc::new(Mutex::new((0..50).map(topic).collect::<VecDeque<_>>()));
    let (handle, _stop) = proposer_behind(Vec::new(), true, Arc::clone(&elsewhere));
    let mut times = 0;
    let reply = handle.run(move |image| {
        times += 1;
        Decision::reply((times, image.version.0))
    });
    assert_eq!(reply.await, Ok((2, 1)));
    assert_eq!(elsewhere.lock().unwrap().len(), 49);
}

#[tokio::test]
async fn without_a_leader_another_try_is_made_until_the_time_is_over() {
    let nobody = || Answer::Fail(ProposeError::NotLeader { leader: None });
    let (handle, _stop) = proposer((0..50).map(|_| nobody()).collect(), false);
    assert_eq!(handle.run(|_| Decision::new(vec![topic(1)], ())).await, Ok(()));
    let asked = handle.run_within(Duration::from_millis(1), |_| Decision::reply(()));
    assert_eq!(asked.await, Err(ProposeError::Timeout));
    // Whoever waits no more holds nobody up.
    assert_eq!(handle.run(|_| Decision::new(vec![topic(2)], ())).await, Ok(()));
}

#[tokio::test]
async fn a_batch_that_was_taken_by_a_leader_that_failed_is_not_decided_again() {
    let (handle, _stop) = proposer(vec![Answer::TakenAndLost], true);
    let create = |image: &Image| {
        let exists = image.topics.by_name("t1").is_some();
        Decision::new(if exists { Vec::new() } else { vec![topic(1)] }, exists)
    };
    assert_eq!(handle.run(create).await, Ok(false), "it was this caller that made the topic");
    assert_eq!(handle.image().version.0, 1);
}

#[tokio::test]
async fn waiting_has_a_limit_and_stopping_ends_it() {
    let (handle, stop) = proposer(vec![Answer::Never], true);
    let limited = handle.run_within(Duration::from_millis(1), |_| Decision::new(vec![topic(1)], ()));
    assert_eq!(limited.await, Err(ProposeError::Timeout));
    let queued = handle.run(|_| Decision::new(vec![topic(2)], ()));
    let (queued, ()) = tokio::join!(queued, async { drop(stop) });
    assert_eq!(queued, Err(ProposeError::ShuttingDown));
    assert_eq!(topics_in(&handle.image()), Vec::<String>::new());
}

#[test]
fn a_batch_that_is_full_leaves_the_rest_for_the_next() {
    let mut waiting = Waiting::new();
    let mut answers = Vec::new();
    for nth in 0..3 {
        let (command, answer) = deciding::command(move |_| Decision::new(vec![topic(nth)], ()));
        waiting.push_back(command);
        answers.push(answer);
    }
    let (batch, decided) = deciding::decide_all(&Image::default(), &mut waiting, 40);
    assert!(batch.records.len() > 40);
    assert_eq!((decided.len(), waiting.len()), (2, 1));
}

#[test]
fn a_batch_is_for_one_term_at_most() {
    let mut waiting = Waiting::new();
    let mut answers = Vec::new();
    let of = [(None, 1), (Some(3), 1), (Some(4), 0), (None, 1), (Some(3), 1), (Some(4), 1), (Some(4), 1)];
    for (nth, (term, count)) in of.into_iter().enumerate() {
        let decide = move |_: &Image| Decision::new((0..count).map(|_| topic(nth as u64)).collect(), ());
        let (command, answer) = deciding::command_of(term, decide);
        waiting.push_back(command);
        answers.push(answer);
    }
    let (batch, decided) = deciding::decide_all(&Image::default(), &mut waiting, 1000);
    assert_eq!((batch.term, decided.len(), waiting.len()), (Some(3), 5, 2));
    let (batch, decided) = deciding::decide_all(&Image::default(), &mut waiting, 1000);
    assert_eq!((batch.term, decided.len(), waiting.len()), (Some(4), 2, 0));
    let (batch, _) = deciding::decide_all(&Image::default(), &mut waiting, 1000);
    assert_eq!((batch.term, batch.records.len()), (None, 0));
}

#[test]
fn whom_nobody_waits_for_is_not_decided() {
    let (command, answer) = deciding::command(|_| Decision::new(vec![topic(1)], ()));
    drop(answer);
    let mut waiting = Waiting::from([command]);
    let (batch, decided) = deciding::decide_all(&Image::default(), &mut waiting, 40);
    assert!(batch.records.is_empty() && decided.is_empty() && waiting.is_empty());
}
