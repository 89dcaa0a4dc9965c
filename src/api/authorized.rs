//! The operations that a client may carry out on a resource, as the bit fields of Metadata and DescribeCluster (KIP-430).
//! Without an authorizer a client may do all that there is to do.

/// Codes of `org.apache.kafka.common.acl.AclOperation`; bit n of a field stands for code n.
const READ: i32 = 1 << 3;
const WRITE: i32 = 1 << 4;
const CREATE: i32 = 1 << 5;
const DELETE: i32 = 1 << 6;
const ALTER: i32 = 1 << 7;
const DESCRIBE: i32 = 1 << 8;
const CLUSTER_ACTION: i32 = 1 << 9;
const DESCRIBE_CONFIGS: i32 = 1 << 10;
const ALTER_CONFIGS: i32 = 1 << 11;
const IDEMPOTENT_WRITE: i32 = 1 << 12;

/// What a response holds when the client did not ask.
pub const NOT_ASKED: i32 = i32::MIN;

/// The operations on a topic.
pub fn on_topic() -> i32 {
    READ | WRITE | CREATE | DELETE | ALTER | DESCRIBE | DESCRIBE_CONFIGS | ALTER_CONFIGS
}

/// The operations on a group.
pub fn on_group() -> i32 {
    READ | DELETE | DESCRIBE | DESCRIBE_CONFIGS | ALTER_CONFIGS
}

/// The operations on the cluster.
pub fn on_cluster() -> i32 {
    CREATE | ALTER | DESCRIBE | CLUSTER_ACTION | DESCRIBE_CONFIGS | ALTER_CONFIGS | IDEMPOTENT_WRITE
}
