//! The properties of a broker that the code reads, typed. Listeners, identity and quorum are in `node`. Knows no
//! sources and no layers. Invariant: only plain values; a change makes a new one.

use std::path::Path;

use super::table::parse_ip_overrides;
use super::typed::typed_config;

typed_config! {
    /// A broker's properties as they hold at one moment.
    pub struct BrokerConfig of Broker {
        request_timeout_ms: i32 = "request.timeout.ms",
        auto_leader_rebalance_enable: bool = "auto.leader.rebalance.enable",
        leader_imbalance_check_interval_seconds: i64 = "leader.imbalance.check.interval.seconds",
        unclean_leader_election_interval_ms: i64 = "unclean.leader.election.interval.ms",
        broker_heartbeat_interval_ms: i32 = "broker.heartbeat.interval.ms",
        broker_session_timeout_ms: i32 = "broker.session.timeout.ms",
        initial_broker_registration_timeout_ms: i32 = "initial.broker.registration.timeout.ms",
        controlled_shutdown_enable: bool = "controlled.shutdown.enable",
        delete_topic_enable: bool = "delete.topic.enable",
        fetch_max_bytes: i32 = "fetch.max.bytes",
        transactional_id_expiration_ms: i32 = "transactional.id.expiration.ms",
        transaction_max_timeout_ms: i32 = "transaction.max.timeout.ms",
        transaction_state_log_load_buffer_size: i32 = "transaction.state.log.load.buffer.size",
        transaction_abort_timed_out_transaction_cleanup_interval_ms: i32 =
            "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        transaction_remove_expired_transaction_cleanup_interval_ms: i32 =
            "transaction.remove.expired.transaction.cleanup.interval.ms",
        add_partitions_to_txn_retry_backoff_ms: i32 = "add.partitions.to.txn.retry.backoff.ms",
        add_partitions_to_txn_retry_backoff_max_ms: i32 = "add.partitions.to.txn.retry.backoff.max.ms",
        transaction_partition_verification_enable: bool = "transaction.partition.verification.enable",
        max_incremental_fetch_session_cache_slots: i32 = "max.incremental.fetch.session.cache.slots",
        max_request_partition_size_limit: i32 = "max.request.partition.size.limit",

        num_network_threads: i32 = "num.network.threads",
        /// 0 means one for each processor.
        num_shard_threads: i32 = "num.shard.threads",
        queued_max_requests: i32 = "queued.max.requests",
        /// Not positive means no limit.
        queued_max_request_bytes: i64 = "queued.max.request.bytes",
        socket_send_buffer_bytes: i32 = "socket.send.buffer.bytes",
        socket_receive_buffer_bytes: i32 = "socket.receive.buffer.bytes",
        socket_listen_backlog_size: i32 = "socket.listen.backlog.size",
        socket_request_max_bytes: i32 = "socket.request.max.bytes",
        max_connections: i32 = "max.connections",
        max_connections_per_ip: i32 = "max.connections.per.ip",
        /// As text; see [`BrokerConfig::connections_per_ip_overrides`].
        max_connections_per_ip_overrides: String = "max.connections.per.ip.overrides",
        /// Negative means never.
        connections_max_idle_ms: i64 = "connections.max.idle.ms",

        num_partitions: i32 = "num.partitions",
        default_replication_factor: i32 = "default.replication.factor",
        auto_create_topics_enable: bool = "auto.create.topics.enable",
        min_insync_replicas: i32 = "min.insync.replicas",
        cordoned_log_dirs: Vec<String> = "cordoned.log.dirs",
        log_dir_reserve_bytes: i64 = "log.dir.reserve.bytes",
        log_cleaner_enable: bool = "log.cleaner.enable",
        log_cleaner_threads: i32 = "log.cleaner.threads",
        log_cleaner_io_max_bytes_per_second: f64 = "log.cleaner.io.max.bytes.per.second",
        log_cleaner_dedupe_buffer_size: i64 = "log.cleaner.dedupe.buffer.size",
        log_cleaner_io_buffer_size: i32 = "log.cleaner.io.buffer.size",
        log_cleaner_io_buffer_load_factor: f64 = "log.cleaner.io.buffer.load.factor",
        log_cleaner_backoff_ms: i64 = "log.cleaner.backoff.ms",
        log_initial_task_delay_ms: i64 = "log.initial.task.delay.ms",
        log_retention_check_interval_ms: i64 = "log.retention.check.interval.ms",
        log_flush_offset_checkpoint_interval_ms: i32 = "log.flush.offset.checkpoint.interval.ms",
        log_flush_start_offset_checkpoint_interval_ms: i32 = "log.flush.start.offset.checkpoint.interval.ms",
        replica_fetch_backoff_ms: i32 = "replica.fetch.backoff.ms",
        /// When set, consumers are sent to a replica in their rack.
        replica_selector_class: Option<String> = "replica.selector.class",
        replica_fetch_max_bytes: i32 = "replica.fetch.max.bytes",
        replica_fetch_min_bytes: i32 = "replica.fetch.min.bytes",
        replica_fetch_response_max_bytes: i32 = "replica.fetch.response.max.bytes",
        replica_fetch_wait_max_ms: i32 = "replica.fetch.wait.max.ms",
        replica_socket_timeout_ms: i32 = "replica.socket.timeout.ms",
        num_replica_fetchers: i32 = "num.replica.fetchers",
        leader_replication_throttled_rate: Option<i64> = "leader.replication.throttled.rate",
        follower_replication_throttled_rate: Option<i64> = "follower.replication.throttled.rate",
        replica_alter_log_dirs_io_max_bytes_per_second: Option<i64> =
            "replica.alter.log.dirs.io.max.bytes.per.second",
        /// Unset: one for each log directory.
        num_replica_alter_log_dirs_threads: Option<i32> = "num.replica.alter.log.dirs.threads",
        replica_lag_time_max_ms: i64 = "replica.lag.time.max.ms",
        replica_high_watermark_checkpoint_interval_ms: i64 = "replica.high.watermark.checkpoint.interval.ms",
        num_recovery_threads_per_data_dir: i32 = "num.recovery.threads.per.data.dir",
        producer_id_expiration_ms: i32 = "producer.id.expiration.ms",
        producer_id_expiration_check_interval_ms: i32 = "producer.id.expiration.check.interval.ms",
        producer_state_max_per_partition: i32 = "producer.state.max.per.partition",
        producer_state_max: i32 = "producer.state.max",

        group_min_session_timeout_ms: i32 = "group.min.session.timeout.ms",
        group_max_session_timeout_ms: i32 = "group.max.session.timeout.ms",
        group_initial_rebalance_delay_ms: i32 = "group.initial.rebalance.delay.ms",
        group_max_size: i32 = "group.max.size",
        group_coordinator_rebalance_protocols: Vec<String> = "group.coordinator.rebalance.protocols",
        group_consumer_session_timeout_ms: i32 = "group.consumer.session.timeout.ms",
        group_consumer_min_session_timeout_ms: i32 = "group.consumer.min.session.timeout.ms",
        group_consumer_max_session_timeout_ms: i32 = "group.consumer.max.session.timeout.ms",
        group_consumer_heartbeat_interval_ms: i32 = "group.consumer.heartbeat.interval.ms",
        group_consumer_min_heartbeat_interval_ms: i32 = "group.consumer.min.heartbeat.interval.ms",
        group_consumer_max_heartbeat_interval_ms: i32 = "group.consumer.max.heartbeat.interval.ms",
        group_consumer_assignment_interval_ms: i32 = "group.consumer.assignment.interval.ms",
        group_consumer_min_assignment_interval_ms: i32 = "group.consumer.min.assignment.interval.ms",
        group_consumer_max_assignment_interval_ms: i32 = "group.consumer.max.assignment.interval.ms",
        group_consumer_max_size: i32 = "group.consumer.max.size",
        group_consumer_assignors: Vec<String> = "group.consumer.assignors",
        group_consumer_migration_policy: String = "group.consumer.migration.policy",
        group_consumer_regex_refresh_interval_ms: i32 = "group.consumer.regex.refresh.interval.ms",
        offset_metadata_max_bytes: i32 = "offset.metadata.max.bytes",
        offsets_load_buffer_size: i32 = "offsets.load.buffer.size",
        offsets_topic_replication_factor: i16 = "offsets.topic.replication.factor",
        offsets_topic_num_partitions: i32 = "offsets.topic.num.partitions",
        offsets_topic_segment_bytes: i32 = "offsets.topic.segment.bytes",
        /// The number of a codec, as in record batches.
        offsets_topic_compression_codec: i32 = "offsets.topic.compression.codec",
        offsets_retention_minutes: i32 = "offsets.retention.minutes",
        offsets_retention_check_interval_ms: i64 = "offsets.retention.check.interval.ms",
        offsets_commit_timeout_ms: i32 = "offsets.commit.timeout.ms",
        transaction_state_log_replication_factor: i16 = "transaction.state.log.replication.factor",
        transaction_state_log_min_isr: i32 = "transaction.state.log.min.isr",
        transaction_state_log_num_partitions: i32 = "transaction.state.log.num.partitions",
        transaction_state_log_segment_bytes: i32 = "transaction.state.log.segment.bytes",

        metadata_log_max_record_bytes_between_snapshots: i64 =
            "metadata.log.max.record.bytes.between.snapshots",
        /// 0 means no limit.
        metadata_log_max_snapshot_interval_ms: i64 = "metadata.log.max.snapshot.interval.ms",
    }
}

impl BrokerConfig {
    /// Whether `cordoned.log.dirs` keeps new partitions out of this one of `log.dirs`.
    pub fn cordons(&self, log_dir: &Path) -> bool {
        self.cordoned_log_dirs.iter().any(|dir| dir == "*" || Path::new(dir) == log_dir)
    }

    /// The limits of connections for single addresses or hosts.
    pub fn connections_per_ip_overrides(&self) -> Vec<(String, i32)> {
        // The table's rule has refused what does not parse.
        parse_ip_overrides(&self.max_connections_per_ip_overrides).unwrap_or_default()
    }
}
