//! The term in which this node leads the quorum, while it does: what a task has noted of it, for those who wait, and what is so
//! now, for those who ask.
//!
//! Must not know openraft. Invariant: a term that has ended for whoever carries proposals has ended here.

use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;

/// Cheap to clone.
#[derive(Clone)]
pub struct Office {
    noted: watch::Receiver<Option<u64>>,
    lasts: Arc<dyn Fn(u64) -> bool + Send + Sync>,
}

impl Office {
    /// `noted` comes somewhat late; `lasts` says whether a term lasts still.
    pub fn new(
        noted: watch::Receiver<Option<u64>>,
        lasts: impl Fn(u64) -> bool + Send + Sync + 'static,
    ) -> Office {
        Office { noted, lasts: Arc::new(lasts) }
    }

    /// The term in which this node leads now.
    pub fn term(&self) -> Option<u64> {
        let noted = *self.noted.borrow();
        noted.filter(|term| (self.lasts)(*term))
    }

    /// Waits until another term is noted, or none. `false`: there will be no other any more.
    pub async fn changed(&mut self) -> bool {
        self.noted.changed().await.is_ok()
    }

    /// Waits until this node leads. `false`: it never will.
    pub async fn begins(&mut self) -> bool {
        self.noted.wait_for(Option::is_some).await.is_ok()
    }

    /// Waits until this node does not lead.
    pub async fn ends(&mut self) {
        // Whoever noted it is gone with it.
        let _ = self.noted.wait_for(Option::is_none).await;
    }
}

impl fmt::Debug for Office {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Office").field("term", &self.term()).finish_non_exhaustive()
    }
}
