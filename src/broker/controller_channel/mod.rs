//! The way from this broker to the active controller: a connection that is kept, dialled again when it breaks, and found
//! again when another node leads. When this node leads, lifecycle and in-sync sets take the short way, within the process:
//! the decisions are the same. A node that leads by its own account only, as its quorum is silent or a decision has taken too
//! long, asks the other voters first: its openraft may hang, and not know that another one leads.
//!
//! No policy: a call that fails has failed, and whoever called tries again. Must not know what is asked, but for the calls in
//! `calls`. Invariant: a connection on which a call failed is never used again.

mod calls;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kafka_protocol::protocol::Request;

use calls::Answer;
pub use calls::{AlterCallError, HeartbeatCallError, RegisterCallError};

use crate::controller::duties::ActiveController;
use crate::peer::{Address, CallError, Connection, DialError};

/// Says where the active controller may listen, the likeliest place first. Several are there when this node holds itself
/// for it: the other voters, and this node last.
pub type FindController = Arc<dyn Fn() -> Vec<Address> + Send + Sync>;

/// Why the controller has not answered.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    #[error("no node leads the metadata quorum, as far as this one knows")]
    NoController,
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error("the active controller at {0}: {1}")]
    Call(Address, CallError),
}

/// Reaches the active controller; cheap to clone, and all clones share a connection.
#[derive(Clone)]
pub struct ControllerChannel {
    shared: Arc<Shared>,
}

struct Shared {
    /// The duties of this node, which may be the active controller itself.
    active: Option<ActiveController>,
    find: FindController,
    cluster_id: Arc<str>,
    client_id: String,
    kept: Mutex<Option<(Address, Connection)>>,
    /// This node's own decision has taken too long, and nobody has said since that this node leads.
    doubted: AtomicBool,
}

impl ControllerChannel {
    pub fn new(
        active: Option<ActiveController>,
        find: FindController,
        cluster_id: Arc<str>,
        client_id: &str,
    ) -> ControllerChannel {
        let kept = Mutex::default();
        let client_id = client_id.to_owned();
        let doubted = AtomicBool::new(false);
        ControllerChannel { shared: Arc::new(Shared { active, find, cluster_id, client_id, kept, doubted }) }
    }

    /// The same with a connection of its own, on which nothing waits for what others ask.
    pub fn separate(&self) -> ControllerChannel {
        let shared = &self.shared;
        let find = Arc::clone(&shared.find);
        let cluster_id = Arc::clone(&shared.cluster_id);
        ControllerChannel::new(shared.active.clone(), find, cluster_id, &shared.client_id)
    }

    /// Asks the active controller, by a connection also when it is this node. Where it may be one of several, they are asked
    /// in turn, in equal parts of the time.
    pub async fn call<R: Request + 'static>(
        &self,
        request: &R,
        limit: Duration,
    ) -> Result<R::Response, ChannelError>
    where
        R::Response: Answer,
    {
        let candidates = (self.shared.find)();
        let count = u32::try_from(candidates.len()).unwrap_or(u32::MAX).max(1);
        let mut outcome = Err(ChannelError::NoController);
        for (address, left) in candidates.iter().zip((0..count).rev()) {
            outcome = self.ask(address, request, limit / count).await;
            let is_answer = outcome.as_ref().is_ok_and(|answer| !answer.is_of_another());
            if is_answer || left == 0 {
                // Another node's answer says that this one does not lead; whatever comes last says nothing of others.
                self.shared.doubted.fetch_and(left > 0, Ordering::Relaxed);
                break;
            }
        }
        outcome
    }

    async fn ask<R: Request + 'static>(
        &self,
        address: &Address,
        request: &R,
        limit: Duration,
    ) -> Result<R::Response, ChannelError> {
        let connection = self.connection(address, limit).await?;
        match connection.call(request, limit).await {
            Ok(response) => Ok(response),
            Err(error) => {
                if !matches!(error, CallError::NotServed) {
                    self.shared.forget(address);
                }
                Err(ChannelError::Call(address.clone(), error))
            }
        }
    }

    /// This node's own duties while it leads, and nothing says that another one may.
    fn here(&self) -> Option<&ActiveController> {
        let active = self.shared.active.as_ref().filter(|active| active.is_active())?;
        let is_doubtful = active.is_cut_off() || self.shared.doubted.load(Ordering::Relaxed);
        (!is_doubtful || (self.shared.find)().len() < 2).then_some(active)
    }

    async fn connection(&self, address: &Address, limit: Duration) -> Result<Connection, DialError> {
        if let Some((to, connection)) = &*self.shared.lock()
            && to == address
            && !connection.is_closed()
        {
            return Ok(connection.clone());
        }
        let connection = Connection::open(address, &self.shared.client_id, limit).await?;
        *self.shared.lock() = Some((address.clone(), connection.clone()));
        Ok(connection)
    }
}

impl Shared {
    fn forget(&self, address: &Address) {
        let mut kept = self.lock();
        if kept.as_ref().is_some_and(|(to, _)| to == address) {
            *kept = None;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<(Address, Connection)>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for ControllerChannel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ControllerChannel").field("here", &self.here().is_some()).finish_non_exhaustive()
    }
}
