//! The error codes of decisions on metadata, and of decisions that could not be made at all.

use crate::config::AlterErrorKind;
use crate::controller::ProposeError;
use crate::controller::duties::DutyError;
use crate::metadata::brokers::BrokerEpochError;
use crate::metadata::configs::AlterConfigError;
use crate::metadata::controllers::UnregisterControllerError;
use crate::metadata::elect_leaders::ElectLeaderError;
use crate::metadata::producer_ids::AllocateProducerIdsError;
use crate::metadata::reassign::ReassignError;
use crate::metadata::topics::{
    AssignmentError, CreatePartitionsError, CreateTopicError, DeleteTopicError, TooManyPartitions,
};
use crate::types::ErrorCode;

/// A code with the words that go with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub code: ErrorCode,
    pub message: String,
}

impl Refusal {
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Refusal {
        Refusal { code, message: message.into() }
    }
}

impl From<ProposeError> for Refusal {
    fn from(error: ProposeError) -> Refusal {
        let code = match &error {
            ProposeError::NotLeader { .. } | ProposeError::ShuttingDown => ErrorCode::NotController,
            ProposeError::Unavailable(_) => ErrorCode::BrokerNotAvailable,
            ProposeError::Timeout => ErrorCode::RequestTimedOut,
            ProposeError::Defect => ErrorCode::UnknownServerError,
        };
        Refusal::new(code, error.to_string())
    }
}

impl From<TooManyPartitions> for Refusal {
    fn from(error: TooManyPartitions) -> Refusal {
        Refusal::new(ErrorCode::PolicyViolation, error.to_string())
    }
}

impl From<CreateTopicError> for Refusal {
    fn from(error: CreateTopicError) -> Refusal {
        let code = match &error {
            CreateTopicError::Duplicate
            | CreateTopicError::ClusterMetadata
            | CreateTopicError::AssignmentsAndReplicationFactor
            | CreateTopicError::AssignmentsAndPartitions => ErrorCode::InvalidRequest,
            CreateTopicError::InvalidName(_) | CreateTopicError::Collides { .. } => {
                ErrorCode::InvalidTopicException
            }
            CreateTopicError::Exists(_) => ErrorCode::TopicAlreadyExists,
            CreateTopicError::NullConfigs(_) | CreateTopicError::InvalidConfig(_) => ErrorCode::InvalidConfig,
            CreateTopicError::DuplicateAssignment(_) | CreateTopicError::AssignmentsNotConsecutive => {
                ErrorCode::InvalidReplicaAssignment
            }
            CreateTopicError::Assignment(error) => assignment(error),
            CreateTopicError::InvalidReplicationFactor | CreateTopicError::Replication(_) => {
                ErrorCode::InvalidReplicationFactor
            }
            CreateTopicError::InvalidPartitions => ErrorCode::InvalidPartitions,
        };
        Refusal::new(code, error.to_string())
    }
}

impl From<CreatePartitionsError> for Refusal {
    fn from(error: CreatePartitionsError) -> Refusal {
        let code = match &error {
            CreatePartitionsError::Duplicate => ErrorCode::InvalidRequest,
            CreatePartitionsError::UnknownTopic => ErrorCode::UnknownTopicOrPartition,
            CreatePartitionsError::SameCount(_) | CreatePartitionsError::FewerPartitions { .. } => {
                ErrorCode::InvalidPartitions
            }
            CreatePartitionsError::WrongNumberOfAssignments { .. } => ErrorCode::InvalidReplicaAssignment,
            CreatePartitionsError::Assignment(error) => assignment(error),
            CreatePartitionsError::Replication(_) => ErrorCode::InvalidReplicationFactor,
        };
        Refusal::new(code, error.to_string())
    }
}

impl From<DeleteTopicError> for Refusal {
    fn from(error: DeleteTopicError) -> Refusal {
        let code = match error {
            DeleteTopicError::UnknownName => ErrorCode::UnknownTopicOrPartition,
            DeleteTopicError::UnknownId => ErrorCode::UnknownTopicId,
            DeleteTopicError::Duplicate | DeleteTopicError::DuplicateOfId => ErrorCode::InvalidRequest,
        };
        Refusal::new(code, error.to_string())
    }
}

impl From<AlterConfigError> for Refusal {
    fn from(error: AlterConfigError) -> Refusal {
        let code = match &error {
            AlterConfigError::DuplicateResource
            | AlterConfigError::DuplicateKey(_)
            | AlterConfigError::InvalidBrokerName(_)
            | AlterConfigError::NoName(_) => ErrorCode::InvalidRequest,
            AlterConfigError::UnknownTopic(_) => ErrorCode::UnknownTopicOrPartition,
            AlterConfigError::UnknownBroker(_) => ErrorCode::BrokerIdNotRegistered,
            AlterConfigError::NotAList(_)
            | AlterConfigError::TooLong(_)
            | AlterConfigError::BrokerMinIsr
            | AlterConfigError::ClusterMinIsr
            | AlterConfigError::CordonedLogDirs => ErrorCode::InvalidConfig,
            AlterConfigError::Invalid(error) => match error.kind {
                AlterErrorKind::InvalidConfig => ErrorCode::InvalidConfig,
                AlterErrorKind::InvalidRequest => ErrorCode::InvalidRequest,
            },
        };
        Refusal::new(code, error.to_string())
    }
}

impl From<BrokerEpochError> for Refusal {
    fn from(error: BrokerEpochError) -> Refusal {
        Refusal::new(ErrorCode::StaleBrokerEpoch, error.to_string())
    }
}

impl From<UnregisterControllerError> for Refusal {
    fn from(error: UnregisterControllerError) -> Refusal {
        let code = match &error {
            UnregisterControllerError::UnsupportedVersion(_) => ErrorCode::UnsupportedVersion,
            UnregisterControllerError::NotRegistered(_) => ErrorCode::ControllerIdNotRegistered,
        };
        Refusal::new(code, error.to_string())
    }
}

impl From<AllocateProducerIdsError> for Refusal {
    fn from(error: AllocateProducerIdsError) -> Refusal {
        let code = match &error {
            AllocateProducerIdsError::BrokerNotRegistered(_)
            | AllocateProducerIdsError::StaleBrokerEpoch { .. } => ErrorCode::StaleBrokerEpoch,
            AllocateProducerIdsError::Exhausted => ErrorCode::UnknownServerError,
        };
        Refusal::new(code, error.to_string())
    }
}

impl From<ElectLeaderError> for Refusal {
    fn from(error: ElectLeaderError) -> Refusal {
        let code = match error {
            ElectLeaderError::UnknownTopic | ElectLeaderError::UnknownPartition => {
                ErrorCode::UnknownTopicOrPartition
            }
            ElectLeaderError::NotNeeded => ErrorCode::ElectionNotNeeded,
            ElectLeaderError::PreferredNotAvailable => ErrorCode::PreferredLeaderNotAvailable,
            ElectLeaderError::EligibleNotAvailable => ErrorCode::EligibleLeadersNotAvailable,
        };
        Refusal::new(code, error.to_string())
    }
}

impl From<ReassignError> for Refusal {
    fn from(error: ReassignError) -> Refusal {
        let code = match &error {
            ReassignError::UnknownTopic | ReassignError::UnknownPartition => {
                ErrorCode::UnknownTopicOrPartition
            }
            ReassignError::NoneInProgress => ErrorCode::NoReassignmentInProgress,
            ReassignError::Assignment(error) => assignment(error),
            ReassignError::ReplicationFactor { .. } => ErrorCode::InvalidReplicationFactor,
            ReassignError::UncleanRevert => ErrorCode::InvalidReplicaAssignment,
        };
        Refusal::new(code, error.to_string())
    }
}

/// Why the active controller does not do something for a broker.
impl<E: Into<Refusal>> From<DutyError<E>> for Refusal {
    fn from(error: DutyError<E>) -> Refusal {
        match error {
            DutyError::NotController => {
                Refusal::new(ErrorCode::NotController, "this node is not the active controller")
            }
            DutyError::Metadata(error) => error.into(),
            DutyError::Refused(error) => error.into(),
        }
    }
}

fn assignment(error: &AssignmentError) -> ErrorCode {
    match error {
        AssignmentError::Empty(_)
        | AssignmentError::UnknownBroker(_)
        | AssignmentError::CordonedBroker(_)
        | AssignmentError::DuplicateBroker(_)
        | AssignmentError::InconsistentReplicationFactor { .. }
        | AssignmentError::NoActiveBroker(_) => ErrorCode::InvalidReplicaAssignment,
    }
}

/// What UpdateFeatures answers for a feature that stays as it is.
pub fn feature(reason: &crate::metadata::features::RefusedBecause) -> ErrorCode {
    use crate::metadata::features::RefusedBecause as Because;
    match reason {
        Because::UnknownUpgradeType => ErrorCode::InvalidRequest,
        Because::Negative
        | Because::NotSupported { .. }
        | Because::OutOfRange { .. }
        | Because::DowngradeNotAllowed
        | Because::NotADowngrade
        | Because::LosesMetadata { .. }
        | Because::Needs { .. }
        | Because::Fixed => ErrorCode::InvalidUpdateVersion,
    }
}
