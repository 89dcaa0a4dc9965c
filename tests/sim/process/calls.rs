//! What a process asks of the controllers: registration, heartbeats, in-sync sets, placement and blocks of producer ids; and
//! which of them it asks.
//!
//! Must not know what they decide. Invariant: one heartbeat is under way at a time, as in the product.

use super::{Call, Process};
use crate::broker::mailbox::Message;
use crate::broker::messages::{IsrAltered, IsrProposal};
use crate::metadata::alter_partition::{AlterPartitionError, ProposedIsr};
use crate::metadata::brokers::{Heartbeat, Registration};
use crate::metadata::features::supported_features;
use crate::metadata::topics::LeaderRecoveryState;
use crate::replica::AlterOutcome;
use crate::sim::context::{Context, Ms, ProcessEvent, note};
use crate::sim::controller::{Answer, Request};
use crate::sim::network::{Body, Caller, Place};
use crate::types::{DirectoryId, MonotonicMs, Offset, TopicIdPartition};
use std::sync::Arc;

const HEARTBEAT_MS: Ms = 250;
/// After one that had no answer.
const SHORT_HEARTBEAT_MS: Ms = 50;
const REGISTER_PAUSE_MS: Ms = 100;
const CALL_LIMIT_MS: Ms = 900;

impl Process {
    pub(super) fn call(&mut self, context: &mut Context, what: Call, request: Request) {
        let call = context.unique();
        self.calls.insert(call, what);
        self.after(context, CALL_LIMIT_MS, ProcessEvent::CallTimeout(call));
        let caller = Caller::Process { node: self.me.0, life: self.life };
        let to = Place::Controller(self.controller.1);
        context.send(Place::Node(self.me.0), to, Body::Call { caller, call, request });
    }

    /// Nobody has answered this call: the connection is given up.
    pub(super) fn give_up(&mut self, context: &mut Context, call: u64) {
        if !self.calls.contains_key(&call) {
            return;
        }
        if let Some(epoch) = self.epoch {
            let to = Place::Controller(self.controller.1);
            context.send(Place::Node(self.me.0), to, Body::Closed(self.me, epoch));
        }
        self.seek_controller(context);
        self.answered(context, call, Answer::Failed);
    }

    /// Asks another controller the next time.
    fn seek_controller(&mut self, context: &Context) {
        self.controller.1 = (self.controller.1 + 1) % context.plan.controllers;
    }

    pub(super) fn register(&mut self, context: &mut Context) {
        let features = supported_features().into_iter().map(|(name, min, max)| (Arc::from(name), (min, max)));
        let registration = Registration {
            id: self.me,
            incarnation: self.incarnation,
            endpoints: Vec::new(),
            features: features.collect(),
            rack: None,
            directories: self.directories.iter().map(|directory| directory.id()).collect(),
            previous_epoch: self.previous_epoch,
        };
        self.call(context, Call::Register, Request::Register(registration));
    }

    pub(super) fn heartbeat(&mut self, context: &mut Context) {
        let Some(epoch) = self.epoch else { return };
        let failed = self.directories.iter().filter(|directory| !directory.is_online());
        let heartbeat = Heartbeat {
            id: self.me,
            epoch,
            metadata_offset: Offset(self.caught_up as i64 - 1),
            want_fence: false,
            want_shutdown: self.leaves,
            offline_directories: failed.map(|directory| directory.id()).collect(),
            cordoned_directories: Some(Vec::new()),
        };
        let mut silent = self.replication.silence.silent(MonotonicMs(context.now));
        silent.retain(|(id, _)| self.image.brokers.get(*id).is_some_and(|broker| !broker.fenced));
        self.call(context, Call::Heartbeat(context.now), Request::Heartbeat(heartbeat, silent));
    }

    pub(super) fn report_placement(
        &mut self,
        context: &mut Context,
        placed: Vec<(TopicIdPartition, DirectoryId)>,
    ) {
        let Some(epoch) = self.epoch else { return };
        let request = Request::Place { broker: self.me, epoch, placed: placed.clone() };
        self.call(context, Call::Place(placed), request);
    }

    /// Asks for in-sync sets, one request at a time.
    pub(super) fn propose(&mut self, context: &mut Context) {
        let under_way = self.calls.values().any(|call| matches!(call, Call::Alter(_)));
        let Some(epoch) = self.epoch.filter(|_| !under_way && !self.proposals.is_empty()) else { return };
        let asked = std::mem::take(&mut self.proposals);
        let proposed = |proposal: &IsrProposal| ProposedIsr {
            partition: proposal.id,
            leader_epoch: proposal.alter.leader_epoch,
            partition_epoch: proposal.alter.partition_epoch,
            isr: proposal.alter.isr.clone(),
            recovery_state: LeaderRecoveryState::Recovered,
        };
        let proposals = asked.iter().map(proposed).collect();
        let request = Request::Alter { leader: self.me, epoch, proposals };
        self.call(context, Call::Alter(asked), request);
    }

    pub fn answered(&mut self, context: &mut Context, call: u64, answer: Answer) {
        let Some(what) = self.calls.remove(&call) else { return };
        if matches!(answer, Answer::NotController) {
            self.seek_controller(context);
        }
        match (what, answer) {
            (Call::Register, Answer::Registered(Ok(epoch))) => {
                note!(context, "{} is registered as {epoch}", self.me);
                self.epoch = Some(epoch);
                self.heartbeat(context);
            }
            (Call::Register, answer) => {
                if let Answer::Registered(Err(error)) = answer {
                    note!(context, "{} is not registered: {error}", self.me);
                }
                self.after(context, REGISTER_PAUSE_MS, ProcessEvent::Register);
            }
            (Call::Heartbeat(sent), Answer::Heard(Ok(reply))) => {
                self.may_end |= reply.should_shut_down;
                if reply.fenced {
                    self.lease.revoke();
                } else {
                    self.lease.renew(MonotonicMs(sent));
                }
                let pause = if reply.fenced || self.leaves { SHORT_HEARTBEAT_MS } else { HEARTBEAT_MS };
                self.after(context, pause, ProcessEvent::Heartbeat);
            }
            (Call::Heartbeat(_), Answer::Heard(Err(error))) => {
                note!(context, "{} is told: {error}", self.me);
                self.lease.revoke();
                // This process is still here, and what it acknowledged as well.
                self.previous_epoch = self.epoch.unwrap_or(self.previous_epoch);
                self.register(context);
            }
            (Call::Heartbeat(_), _) => self.after(context, SHORT_HEARTBEAT_MS, ProcessEvent::Heartbeat),
            (Call::Alter(asked), answer) => self.altered(asked, answer),
            (Call::ProducerIds, answer) => {
                let block = match answer {
                    Answer::ProducerIds(given) => given.ok(),
                    _ => None,
                };
                if let Some(coordination) = &mut self.coordination {
                    coordination.take_ids(block);
                }
            }
            (Call::Repair(heard), answer) => {
                let _ = heard.send(match answer {
                    Answer::Repaired(given_up) => given_up,
                    _ => None,
                });
            }
            (Call::Place(placed), Answer::Failed | Answer::NotController) => {
                self.report_placement(context, placed);
            }
            _ => {}
        }
        self.wake(context);
    }

    fn altered(&self, asked: Vec<IsrProposal>, answer: Answer) {
        let mut outcomes = match answer {
            Answer::Altered(Ok(outcomes)) => outcomes.into_iter().map(|(_, outcome)| Some(outcome)).collect(),
            _ => vec![None; asked.len()],
        };
        for (proposal, outcome) in asked.into_iter().zip(outcomes.drain(..)) {
            let outcome = match outcome {
                None => AlterOutcome::Unknown,
                Some(Ok(state)) => AlterOutcome::Applied {
                    leader_epoch: state.leader_epoch,
                    partition_epoch: state.partition_epoch,
                    isr: state.isr,
                },
                Some(Err(error)) => outcome_of(error),
            };
            let altered =
                IsrAltered { id: proposal.id, proposed_at: proposal.alter.partition_epoch, outcome };
            self.partitions.shard_of(&proposal.id).send_event(Message::IsrAltered(vec![altered]));
        }
    }
}

fn outcome_of(error: AlterPartitionError) -> AlterOutcome {
    match error {
        AlterPartitionError::NewerEpoch { .. } => AlterOutcome::Unknown,
        AlterPartitionError::UnknownTopic
        | AlterPartitionError::UnknownPartition
        | AlterPartitionError::FencedLeaderEpoch(_)
        | AlterPartitionError::NotLeader(_)
        | AlterPartitionError::StalePartitionEpoch(_)
        | AlterPartitionError::NewLeaderElected => AlterOutcome::Superseded,
        AlterPartitionError::InvalidMember(_)
        | AlterPartitionError::WithoutLeader
        | AlterPartitionError::RecoveringWithOthers
        | AlterPartitionError::RecoversAgain
        | AlterPartitionError::IneligibleReplica { .. } => AlterOutcome::Refused,
    }
}
