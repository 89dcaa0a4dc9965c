//! Decisions on brokers that take what the active controller alone knows: who lives, and how far each has come. The simulation
//! runs the same.
//!
//! Pure: must not know how it is known, nor in which term.

use crate::metadata::brokers::{
    self, BrokerEpochError, Heartbeat, HeartbeatReply, Known, RegisterBrokerError, Registration,
};
use crate::metadata::election::ElectionDefaults;
use crate::metadata::liveness::Liveness;
use crate::metadata::{Decision, Image};
use crate::types::{BrokerEpoch, MonotonicMs, NodeId};

/// Registers a broker process and gives it its epoch.
pub fn register(
    image: &Image,
    liveness: &Liveness,
    registration: &Registration,
    defaults: ElectionDefaults,
    now: MonotonicMs,
) -> Decision<Result<BrokerEpoch, RegisterBrokerError>> {
    let existing = image.brokers.get(registration.id);
    let is_alive = existing.is_some_and(|broker| liveness.is_alive(broker.id, broker.epoch, now));
    brokers::register(image, registration, is_alive, defaults)
}

/// A heartbeat has come, whatever is decided about it. `silent`: whom that broker waits for in vain, and for how long; what an
/// earlier process of the broker thinks of others does not count. Whether something is to be looked into.
pub fn hear(
    image: &Image,
    liveness: &mut Liveness,
    heartbeat: &Heartbeat,
    silent: &[(NodeId, i64)],
    now: MonotonicMs,
) -> bool {
    let Heartbeat { id, epoch, metadata_offset, .. } = *heartbeat;
    if brokers::check_epoch(image, id, epoch).is_err() {
        return false;
    }
    liveness.heard(id, epoch, metadata_offset, now);
    liveness.asks_for_a_fence(id, epoch, heartbeat.want_fence, now);
    liveness.suspected(id, silent, now);
    !silent.is_empty()
}

/// Decides on a heartbeat.
pub fn heartbeat(
    image: &Image,
    liveness: &mut Liveness,
    heartbeat: &Heartbeat,
    defaults: ElectionDefaults,
    now: MonotonicMs,
) -> Decision<Result<HeartbeatReply, BrokerEpochError>> {
    let (id, epoch) = (heartbeat.id, heartbeat.epoch);
    let mut heartbeat = heartbeat.clone();
    heartbeat.want_fence |= !liveness.may_unfence(id, epoch, now);
    let leaves = image.brokers.get(id).is_some_and(|broker| broker.in_controlled_shutdown);
    let applied = image.version.offset().plus(-1);
    let others_caught_up = leaves && liveness.others_caught_up(id, epoch, applied);
    let known = Known { others_caught_up, insists: liveness.insists_on_a_fence(id, epoch, now) };
    brokers::heartbeat(image, &heartbeat, known, defaults)
}

/// Fences a broker for which there was a verdict, unless something has spoken for it since. Whether it is fenced by this.
pub fn fence(
    image: &Image,
    liveness: &Liveness,
    (id, epoch): (NodeId, BrokerEpoch),
    defaults: ElectionDefaults,
    now: MonotonicMs,
) -> Decision<bool> {
    if liveness.condemns(id, epoch, now) {
        brokers::fence(image, id, epoch, defaults)
    } else {
        Decision::reply(false)
    }
}
