//! The task that watches brokers while this node leads: it gives the time to [`Liveness`](crate::metadata::liveness), dials
//! whom that wants dialled, and fences whom it condemns. Invariant: it does nothing while another node leads, and sleeps
//! while there is nobody to watch.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::{ActiveController, Inner, judgement};
use crate::metadata::liveness::{Cause, ProbeOutcome, TICK_MS, Verdict};
use crate::metadata::{Decision, Image};
use crate::peer::{Address, Connection, DialError};
use crate::types::{BrokerEpoch, NodeId};

/// How long a probe may take.
const PROBE_LIMIT: Duration = Duration::from_millis(400);
/// The name under which probes come.
const CLIENT_ID: &str = "floodmark-liveness-probe";

/// Watches until the quorum's member has ended.
pub(super) async fn run(controller: ActiveController) {
    let inner = controller.inner;
    let mut office = inner.office.clone();
    let mut images = inner.metadata.subscribe();
    let mut work = JoinSet::new();
    loop {
        let (verdicts, watches) = inner
            .with_liveness(|liveness, now| (liveness.tick(now), liveness.watches()))
            .unwrap_or((Vec::new(), false));
        for verdict in verdicts {
            let inner = Arc::clone(&inner);
            match verdict {
                Verdict::Probe(id, epoch) => drop(work.spawn(probe(inner, id, epoch))),
                Verdict::Fence(id, epoch, cause) => drop(work.spawn(fence(inner, id, epoch, cause))),
            }
        }
        while work.try_join_next().is_some() {}
        let tick = Duration::from_millis(TICK_MS.unsigned_abs());
        tokio::select! {
            changed = office.changed() => if !changed { return },
            changed = images.changed() => if changed.is_err() { return },
            () = inner.wake.notified() => {}
            () = tokio::time::sleep(tick), if watches => {}
        }
    }
}

/// Dials a broker and reports what was found.
async fn probe(inner: Arc<Inner>, id: NodeId, epoch: BrokerEpoch) {
    let image = inner.metadata.image();
    let outcome = match address(&inner, &image, id) {
        Some(address) => match Connection::open(&address, CLIENT_ID, PROBE_LIMIT).await {
            Ok(_) => ProbeOutcome::Answered,
            Err(DialError::Refused(_)) => ProbeOutcome::Refused,
            Err(DialError::Timeout(_) | DialError::Other(..)) => ProbeOutcome::Unanswered,
        },
        None => ProbeOutcome::Unanswered,
    };
    tracing::debug!(broker = id.0, ?outcome, "probed");
    inner.with_liveness(|liveness, now| liveness.probed(id, epoch, outcome, now));
    inner.wake.notify_one();
    if outcome == ProbeOutcome::Refused {
        // The second dial is due before the next tick.
        tokio::time::sleep(Duration::from_millis(REDIAL_MS)).await;
        inner.wake.notify_one();
    }
}

/// A little more than the pause between two dials.
const REDIAL_MS: u64 = 31;

pub(super) fn address(inner: &Inner, image: &Image, id: NodeId) -> Option<Address> {
    let broker = image.brokers.get(id)?;
    let listener = (inner.settings)(image).listener;
    let endpoint = broker.endpoint(&listener).or_else(|| broker.endpoints.first())?;
    Some(Address { host: endpoint.host.to_string(), port: endpoint.port })
}

pub(super) async fn fence(inner: Arc<Inner>, id: NodeId, epoch: BrokerEpoch, cause: Cause) {
    let Some(term) = inner.term_number() else { return };
    let decider = Arc::clone(&inner);
    let decided = inner.metadata.run_in_term(term, move |image| {
        if decider.term_number() != Some(term) {
            return Decision::reply(false);
        }
        let defaults = (decider.settings)(image).defaults;
        let decided = decider
            .with_liveness(|liveness, now| judgement::fence(image, liveness, (id, epoch), defaults, now));
        decided.unwrap_or_else(|| Decision::reply(false))
    });
    match decided.await {
        Ok(true) => tracing::warn!("Broker {id} of epoch {epoch} is fenced: {cause}"),
        Ok(false) => {}
        Err(error) => tracing::warn!("Broker {id} could not be fenced ({cause}): {error}"),
    }
}
