//! What the active controller does from time to time: leadership goes back to preferred replicas. Which partitions are due is
//! decided in `metadata::balance`.
//!
//! Invariant: nothing is decided while another node leads, and a long list of elections is many decisions, not one.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::{ActiveController, DutyError, DutySettings, Inner};
use crate::metadata::balance::{MAX_ELECTIONS, balance_leaders};
use crate::metadata::election::ElectionDefaults;
use crate::metadata::{Decision, Image};

/// One kind of election.
type Decide = fn(&Image, ElectionDefaults) -> Decision<bool>;

/// Does its work until the quorum's member has ended. What is due is counted from when this node came to lead.
pub(super) async fn run(controller: ActiveController) {
    let inner = Arc::clone(&controller.inner);
    let mut office = inner.office.clone();
    loop {
        if !office.begins().await {
            return;
        }
        tokio::select! {
            () = office.ends() => {}
            () = repeat(&controller, |settings| settings.rebalance_interval, balance) => {}
        }
    }
}

fn balance(image: &Image, defaults: ElectionDefaults) -> Decision<bool> {
    balance_leaders(image, 0, MAX_ELECTIONS, defaults)
}

/// Decides again and again, in the interval of the settings as they are; not at all while they have none.
async fn repeat(
    controller: &ActiveController,
    interval: impl Fn(&DutySettings) -> Option<Duration>,
    decide: Decide,
) {
    let inner = &controller.inner;
    let mut last = Instant::now();
    loop {
        let wanted = interval(&inner.settings_now());
        let until = wanted.and_then(|interval| last.checked_add(interval));
        let changed = inner.metadata.changed(inner.metadata.image().version);
        match until {
            None => drop(changed.await),
            Some(until) => tokio::select! {
                // The interval may be another one now.
                _ = changed => continue,
                () = sleep_until(until) => {
                    last = Instant::now();
                    elect(inner, controller, decide).await;
                }
            },
        }
    }
}

async fn elect(inner: &Arc<Inner>, controller: &ActiveController, decide: Decide) {
    loop {
        let settings = Arc::clone(&inner.settings);
        let decided = controller
            .run(move |image| decide(image, settings(image).defaults).map(Ok::<_, std::convert::Infallible>));
        match decided.await {
            Ok(true) => {}
            Ok(false) | Err(DutyError::NotController) => return,
            Err(error) => {
                tracing::warn!("Elections that were due could not be held: {error}");
                return;
            }
        }
    }
}
