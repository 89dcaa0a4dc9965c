//! A member of a classic group: what it said when it joined, what it was assigned, and who waits for it. No behaviour of
//! the group.

use bytes::Bytes;

use super::super::{Asked, Name, Now, Out, Reply, ReplyToken};
use super::{ClassicConfig, Join, JoinError, JoinRefused, Joined, SyncError, Synced};
use crate::types::MonotonicMs;

#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) instance_id: Option<Name>,
    pub(super) client_id: Name,
    pub(super) client_host: Name,
    pub(super) rebalance_timeout_ms: i32,
    pub(super) session_timeout_ms: i32,
    pub(super) protocols: Vec<(Name, Bytes)>,
    pub(super) assignment: Bytes,
    /// The join that waits for the rebalance to end.
    pub(super) joining: Option<ReplyToken>,
    /// The sync that waits for the leader.
    pub(super) syncing: Option<ReplyToken>,
    /// It has joined and has not been told so: its client cannot heartbeat yet.
    pub(super) is_new: bool,
    /// When it is taken for gone unless it is heard from.
    pub(super) expires: MonotonicMs,
}

impl Member {
    /// A member that joins for the first time.
    pub(super) fn joining(join: &Asked<Join>, config: &ClassicConfig, now: Now) -> Member {
        Member {
            instance_id: join.instance_id.clone(),
            client_id: join.client_id.clone(),
            client_host: join.client_host.clone(),
            rebalance_timeout_ms: join.rebalance_timeout_ms,
            session_timeout_ms: join.session_timeout_ms,
            protocols: join.protocols.clone(),
            assignment: Bytes::new(),
            joining: Some(join.token),
            syncing: None,
            is_new: true,
            // Its client waits for the answer to the join and cannot heartbeat; one that has gone away must not stay.
            expires: now.monotonic.plus(config.new_member_join_timeout_ms),
        }
    }

    /// Takes over what a member says when it joins again. A join that waited already is told to try once more.
    pub(super) fn rejoin(&mut self, join: &Asked<Join>, out: &mut Out) {
        self.protocols.clone_from(&join.protocols);
        self.rebalance_timeout_ms = join.rebalance_timeout_ms;
        self.session_timeout_ms = join.session_timeout_ms;
        if let Some(superseded) = self.joining.replace(join.token) {
            let refused =
                JoinRefused { member_id: join.member_id.clone(), error: JoinError::RebalanceInProgress };
            out.reply(superseded, Reply::Join(Err(refused)));
        }
    }

    pub(super) fn heard(&mut self, now: MonotonicMs) {
        self.expires = now.plus(i64::from(self.session_timeout_ms));
    }

    pub(super) fn has_expired(&self, now: MonotonicMs) -> bool {
        self.expires <= now && !self.waits()
    }

    /// Whether it waits for the group, so that its silence means nothing. The client of a new member may have given up.
    pub(super) fn waits(&self) -> bool {
        !self.is_new && (self.joining.is_some() || self.syncing.is_some())
    }

    pub(super) fn metadata(&self, protocol: &str) -> Option<Bytes> {
        let named = self.protocols.iter().find(|(name, _)| **name == *protocol);
        named.map(|(_, metadata)| metadata.clone())
    }

    pub(super) fn supports(&self, protocol: &str) -> bool {
        self.protocols.iter().any(|(name, _)| **name == *protocol)
    }

    pub(super) fn reply_join(&mut self, result: Result<Joined, JoinRefused>, out: &mut Out) {
        if let Some(token) = self.joining.take() {
            out.reply(token, Reply::Join(result));
        }
    }

    pub(super) fn reply_sync(&mut self, result: Result<Synced, SyncError>, out: &mut Out) {
        if let Some(token) = self.syncing.take() {
            out.reply(token, Reply::Sync(result));
        }
    }
}
