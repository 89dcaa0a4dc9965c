//! The limits on replication that is throttled, as the configuration has them at the moment: one for what this broker sends as
//! leader, one for what it takes as follower, one for what it moves between its log directories.
//!
//! Must not know partitions. Invariant: the rate is that of the configuration at each question.

use std::sync::{Arc, Mutex, PoisonError};

use super::clock;
use super::dynamic_config::DynamicConfig;
use crate::replica::Throttle;

/// One direction; cheap to clone.
#[derive(Clone, Debug)]
pub struct ReplicationThrottle {
    config: Arc<DynamicConfig>,
    direction: Direction,
    throttle: Arc<Mutex<Throttle>>,
}

#[derive(Clone, Copy, Debug)]
enum Direction {
    Leader,
    Follower,
    Moves,
}

impl ReplicationThrottle {
    pub fn of_leaders(config: Arc<DynamicConfig>) -> ReplicationThrottle {
        ReplicationThrottle { config, direction: Direction::Leader, throttle: Arc::default() }
    }

    pub fn of_followers(config: Arc<DynamicConfig>) -> ReplicationThrottle {
        ReplicationThrottle { config, direction: Direction::Follower, throttle: Arc::default() }
    }

    pub fn of_moves(config: Arc<DynamicConfig>) -> ReplicationThrottle {
        ReplicationThrottle { config, direction: Direction::Moves, throttle: Arc::default() }
    }

    pub fn rate(&self) -> Option<i64> {
        let broker = &self.config.latest().broker;
        match self.direction {
            Direction::Leader => broker.leader_replication_throttled_rate,
            Direction::Follower => broker.follower_replication_throttled_rate,
            Direction::Moves => broker.replica_alter_log_dirs_io_max_bytes_per_second,
        }
    }

    /// How long nothing may move, if it may not.
    pub fn exceeded_for_ms(&self) -> Option<i64> {
        let rate = self.rate();
        rate?; // without a limit nothing is to be remembered
        let mut throttle = self.throttle.lock().unwrap_or_else(PoisonError::into_inner);
        throttle.update(rate, clock::monotonic());
        throttle.exceeded_for_ms()
    }

    /// So many bytes have moved.
    pub fn record(&self, bytes: usize) {
        let rate = self.rate();
        if bytes > 0 && rate.is_some() {
            let mut throttle = self.throttle.lock().unwrap_or_else(PoisonError::into_inner);
            throttle.update(rate, clock::monotonic());
            throttle.record(bytes);
        }
    }
}
