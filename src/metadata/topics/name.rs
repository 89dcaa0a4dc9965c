//! Which names a topic can have.

/// The longest name.
pub const MAX_NAME_LENGTH: usize = 249;

/// The metadata log's own name, which no topic may take.
pub const CLUSTER_METADATA: &str = "__cluster_metadata";

/// The topics that the brokers keep their own state in.
pub const INTERNAL: [&str; 3] = [CONSUMER_OFFSETS, TRANSACTION_STATE, "__share_group_state"];

/// The log of the coordinators of groups.
pub const CONSUMER_OFFSETS: &str = "__consumer_offsets";

/// The log of the coordinators of transactions.
pub const TRANSACTION_STATE: &str = "__transaction_state";

pub fn is_internal(name: &str) -> bool {
    INTERNAL.contains(&name)
}

/// Why a name is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidName {
    #[error("the empty string is not allowed")]
    Empty,
    #[error("'.' and '..' are not allowed")]
    Dots,
    #[error("it is longer than {MAX_NAME_LENGTH} characters")]
    TooLong,
    #[error("it has characters other than ASCII letters and digits, '.', '_' and '-'")]
    Characters,
}

/// Checks a topic's name.
pub fn validate(name: &str) -> Result<(), InvalidName> {
    if name.is_empty() {
        Err(InvalidName::Empty)
    } else if matches!(name, "." | "..") {
        Err(InvalidName::Dots)
    } else if name.len() > MAX_NAME_LENGTH {
        Err(InvalidName::TooLong)
    } else if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-')) {
        Err(InvalidName::Characters)
    } else {
        Ok(())
    }
}

/// The form in which names collide: metrics cannot tell a dot from an underscore.
pub(super) fn collision_form(name: &str) -> Option<String> {
    name.contains(['.', '_']).then(|| name.replace('.', "_"))
}

#[cfg(test)]
mod tests {
    use super::{InvalidName, MAX_NAME_LENGTH, validate};

    #[test]
    fn names() {
        assert_eq!(validate("Topic-1._x"), Ok(()));
        assert_eq!(validate(&"a".repeat(MAX_NAME_LENGTH)), Ok(()));
        assert_eq!(validate(""), Err(InvalidName::Empty));
        assert_eq!(validate(".."), Err(InvalidName::Dots));
        assert_eq!(validate("..."), Ok(()));
        assert_eq!(validate(&"a".repeat(MAX_NAME_LENGTH + 1)), Err(InvalidName::TooLong));
        assert_eq!(validate("a b"), Err(InvalidName::Characters));
        assert_eq!(validate("ä"), Err(InvalidName::Characters));
    }
}
