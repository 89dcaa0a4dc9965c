//! The leader's side of the observers: each asks by a long poll for what the leader has for it, and brings its reply to the
//! last message with the next poll.
//!
//! Knows nothing of what the messages say. Invariants: an observer has one message at a time, and its reply goes to whoever
//! sent that message and to nobody else; a node id is served to one process at a time.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::{Notify, oneshot};

use crate::controller::peers::GONE_AFTER;
use crate::controller::rpc::Refusal;
use crate::types::{DirectoryId, NodeId};

/// The longest time that a poll waits for something to say.
pub const MAX_WAIT: Duration = Duration::from_millis(500);

/// What kind of message an observer gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Append,
    Snapshot,
}

impl Kind {
    pub fn code(self) -> i8 {
        match self {
            Kind::Append => 1,
            Kind::Snapshot => 2,
        }
    }

    pub fn of(code: i8) -> Option<Kind> {
        [Kind::Append, Kind::Snapshot].into_iter().find(|kind| kind.code() == code)
    }
}

/// A message on its way to an observer.
#[derive(Debug)]
pub struct Outgoing {
    pub id: i64,
    pub kind: Kind,
    pub body: Bytes,
}

/// All observers that have polled this node.
#[derive(Debug, Default)]
pub struct Observers {
    mailboxes: Mutex<HashMap<NodeId, Mailbox>>,
}

#[derive(Debug)]
struct Mailbox {
    directory: DirectoryId,
    /// Unknown while it has not polled.
    last_poll: Option<Instant>,
    /// The newest poll; one before it gets nothing any more.
    poll: u64,
    next_id: i64,
    waiting: VecDeque<(Outgoing, oneshot::Sender<Bytes>)>,
    given: Option<(i64, oneshot::Sender<Bytes>)>,
    arrived: Arc<Notify>,
}

/// A poll that waits.
#[derive(Debug)]
pub struct Poll {
    node: NodeId,
    number: u64,
    arrived: Arc<Notify>,
}

impl Observers {
    /// Begins a poll of a node, which answers message `answered` (0: none) with it.
    pub fn begin(
        &self,
        node: NodeId,
        directory: DirectoryId,
        answered: i64,
        answer: Bytes,
    ) -> Result<Poll, Refusal> {
        let now = Instant::now();
        let mut mailboxes = self.lock();
        let mailbox = mailboxes.entry(node).or_insert_with(|| Mailbox::new(directory));
        if mailbox.directory != directory {
            match mailbox.last_poll {
                Some(last) if now < last + GONE_AFTER => return Err(Refusal::IdInUse),
                Some(_) => *mailbox = Mailbox::new(directory),
                None => mailbox.directory = directory,
            }
        }
        mailbox.last_poll = Some(now);
        mailbox.poll += 1;
        mailbox.arrived.notify_waiters();
        match mailbox.given.take() {
            // Whoever asked may have given up.
            Some((id, to)) if id == answered => drop(to.send(answer)),
            // The message was lost with its connection, and so is what was asked.
            Some(_) | None => {}
        }
        Ok(Poll { node, number: mailbox.poll, arrived: Arc::clone(&mailbox.arrived) })
    }

    /// The next message for a poll; `None` when there is none in time, or a newer poll has come.
    pub async fn next(&self, poll: &Poll, most: Duration) -> Option<Outgoing> {
        let wait = async {
            loop {
                let mut arrived = std::pin::pin!(poll.arrived.notified());
                // From here on no arrival is missed.
                arrived.as_mut().enable();
                match self.take(poll) {
                    Taken::Message(message) => return Some(message),
                    Taken::Superseded => return None,
                    Taken::Nothing => arrived.await,
                }
            }
        };
        tokio::time::timeout(most.min(MAX_WAIT), wait).await.unwrap_or(None)
    }

    fn take(&self, poll: &Poll) -> Taken {
        let mut mailboxes = self.lock();
        let Some(mailbox) = mailboxes.get_mut(&poll.node).filter(|mailbox| mailbox.poll == poll.number)
        else {
            return Taken::Superseded;
        };
        while let Some((message, to)) = mailbox.waiting.pop_front() {
            if !to.is_closed() {
                mailbox.given = Some((message.id, to));
                return Taken::Message(message);
            }
        }
        Taken::Nothing
    }

    /// Gives an observer a message and waits for the body of its answer; `None` when it has gone before.
    pub async fn ask(&self, node: NodeId, kind: Kind, body: Bytes) -> Option<Bytes> {
        let answer = {
            let mut mailboxes = self.lock();
            // One that has not polled yet may come; what is asked then is what it gets first.
            let mailbox = mailboxes.entry(node).or_insert_with(|| Mailbox::new(DirectoryId::nil()));
            let (to, answer) = oneshot::channel();
            mailbox.waiting.retain(|(_, to)| !to.is_closed());
            mailbox.next_id += 1;
            mailbox.waiting.push_back((Outgoing { id: mailbox.next_id, kind, body }, to));
            mailbox.arrived.notify_waiters();
            answer
        };
        answer.await.ok()
    }

    /// A node polls no more.
    pub fn end(&self, node: NodeId, directory: DirectoryId) {
        let mut mailboxes = self.lock();
        if mailboxes.get(&node).is_some_and(|mailbox| mailbox.directory == directory) {
            mailboxes.remove(&node);
        }
    }

    /// Forgets everybody, as a node does that leads no longer: whoever polls is let go.
    pub fn clear(&self) {
        for mailbox in std::mem::take(&mut *self.lock()).into_values() {
            mailbox.arrived.notify_waiters();
        }
    }

    /// When a node has polled last.
    pub fn last_poll(&self, node: NodeId) -> Option<Instant> {
        self.lock().get(&node)?.last_poll
    }

    /// Whether a node has polled lately.
    pub fn polls(&self, node: NodeId) -> bool {
        self.last_poll(node).is_some_and(|last| last.elapsed() < GONE_AFTER)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<NodeId, Mailbox>> {
        self.mailboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Taken {
    Message(Outgoing),
    Nothing,
    Superseded,
}

impl Mailbox {
    fn new(directory: DirectoryId) -> Mailbox {
        Mailbox {
            directory,
            last_poll: None,
            poll: 0,
            next_id: 0,
            waiting: VecDeque::new(),
            given: None,
            arrived: Arc::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    const NODE: NodeId = NodeId(7);
    const LONG: Duration = Duration::from_secs(3600);

    fn directory(nth: u128) -> DirectoryId {
        DirectoryId::from_u128(nth)
    }

    fn poll(observers: &Observers, answered: i64, answer: &'static [u8]) -> Poll {
        observers.begin(NODE, directory(1), answered, Bytes::from_static(answer)).unwrap()
    }

    #[tokio::test]
    async fn a_reply_goes_to_whoever_asked() {
        let observers = Observers::default();
        let asked = observers.ask(NODE, Kind::Append, Bytes::from_static(b"one"));
        let other = observers.ask(NODE, Kind::Snapshot, Bytes::from_static(b"two"));
        let observer = async {
            let first = observers.next(&poll(&observers, 0, b""), LONG).await.unwrap();
            assert_eq!((first.kind, &first.body[..]), (Kind::Append, &b"one"[..]));
            let second = observers.next(&poll(&observers, first.id, b"reply"), LONG).await.unwrap();
            assert_eq!((second.kind, &second.body[..]), (Kind::Snapshot, &b"two"[..]));
            poll(&observers, second.id, b"another")
        };
        let (one, two, last) = tokio::join!(asked, other, observer);
        assert_eq!((one.as_deref(), two.as_deref()), (Some(&b"reply"[..]), Some(&b"another"[..])));
        assert!(observers.next(&last, LONG).now_or_never().is_none(), "there is nothing more to say");
    }

    #[tokio::test]
    async fn a_message_lost_with_its_connection_is_an_error_for_whoever_asked() {
        let observers = Observers::default();
        let mut asked = std::pin::pin!(observers.ask(NODE, Kind::Append, Bytes::new()));
        assert!(asked.as_mut().now_or_never().is_none());
        let first = observers.next(&poll(&observers, 0, b""), LONG).await.unwrap();
        // The observer has dialled again and knows of no message.
        let again = poll(&observers, 0, b"");
        assert_eq!(asked.await, None);
        let asked = observers.ask(NODE, Kind::Append, Bytes::new());
        let (answer, second) = tokio::join!(asked, async {
            let second = observers.next(&again, LONG).await.unwrap();
            // A reply to the lost message is not one to this.
            poll(&observers, first.id, b"late");
            second
        });
        assert_ne!(first.id, second.id);
        assert_eq!(answer, None);
    }

    #[tokio::test]
    async fn a_newer_poll_takes_over() {
        let observers = Observers::default();
        let old = poll(&observers, 0, b"");
        let new = poll(&observers, 0, b"");
        assert!(observers.next(&old, LONG).await.is_none());
        let asked = observers.ask(NODE, Kind::Append, Bytes::new());
        let (_, message) = tokio::join!(asked, async {
            let message = observers.next(&new, LONG).await;
            observers.clear();
            message
        });
        assert!(message.is_some());
    }

    #[test]
    fn a_node_id_is_served_to_one_process() {
        let observers = Observers::default();
        poll(&observers, 0, b"");
        let other = observers.begin(NODE, directory(2), 0, Bytes::new());
        assert_eq!(other.unwrap_err(), Refusal::IdInUse);
        observers.end(NODE, directory(2));
        assert!(observers.polls(NODE), "only its own process ends it");
        observers.end(NODE, directory(1));
        assert!(observers.begin(NODE, directory(2), 0, Bytes::new()).is_ok());
    }
}
