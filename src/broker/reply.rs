//! Answers of several shards to one request, gathered into one.
//!
//! Must not know what the answers mean. Invariant: the gathered answer arrives, whatever happens to the shards: a slot that is
//! dropped unanswered counts as the answer `lost`.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;

/// What is owed for one part of a request.
#[derive(Debug)]
pub struct ReplySlot<T> {
    gather: Option<Arc<Gather<T>>>,
    index: usize,
}

/// The whole answer to come, in the order of the slots.
#[derive(Debug)]
pub struct Gathered<T>(oneshot::Receiver<Vec<T>>);

#[derive(Debug)]
struct Gather<T> {
    state: Mutex<State<T>>,
    lost: fn() -> T,
}

#[derive(Debug)]
struct State<T> {
    answers: Vec<Option<T>>,
    missing: usize,
    complete: Option<oneshot::Sender<Vec<T>>>,
}

/// Opens `count` slots whose answers arrive together; `lost` is the answer of a slot that is dropped.
pub fn gather<T>(count: usize, lost: fn() -> T) -> (Vec<ReplySlot<T>>, Gathered<T>) {
    let (complete, gathered) = oneshot::channel();
    let answers = std::iter::repeat_with(|| None).take(count).collect();
    let state = Mutex::new(State { answers, missing: count, complete: Some(complete) });
    let gather = Arc::new(Gather { state, lost });
    let slots = (0..count).map(|index| ReplySlot { gather: Some(gather.clone()), index }).collect();
    (slots, Gathered(gathered))
}

impl<T> Gathered<T> {
    /// Waits until every slot is answered.
    pub async fn all(self) -> Vec<T> {
        // Without slots nobody sends, and the channel closes at once.
        self.0.await.unwrap_or_default()
    }
}

impl<T> ReplySlot<T> {
    pub fn answer(mut self, answer: T) {
        if let Some(gather) = self.gather.take() {
            gather.settle(self.index, answer);
        }
    }
}

impl<T> Drop for ReplySlot<T> {
    fn drop(&mut self) {
        if let Some(gather) = self.gather.take() {
            gather.settle(self.index, (gather.lost)());
        }
    }
}

impl<T> Gather<T> {
    fn settle(&self, index: usize, answer: T) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.answers[index] = Some(answer);
        state.missing -= 1;
        if state.missing > 0 {
            return;
        }
        let answers = std::mem::take(&mut state.answers);
        if let Some(complete) = state.complete.take() {
            drop(state);
            // Nobody listens when the connection has gone away.
            let _ = complete.send(answers.into_iter().flatten().collect());
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::gather;

    #[test]
    fn arrives_when_the_last_slot_is_answered() {
        let (mut slots, gathered) = gather(3, || "lost");
        let (last, middle, first) = (slots.pop().unwrap(), slots.pop().unwrap(), slots.pop().unwrap());
        last.answer("c");
        first.answer("a");
        let mut all = std::pin::pin!(gathered.all());
        assert!(all.as_mut().now_or_never().is_none());
        drop(middle);
        assert_eq!(all.now_or_never().unwrap(), ["a", "lost", "c"]);
    }

    #[test]
    fn nothing_to_wait_for_is_answered_at_once() {
        assert_eq!(gather(0, || ()).1.all().now_or_never().unwrap(), []);
    }
}
