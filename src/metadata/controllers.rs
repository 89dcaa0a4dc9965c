//! The registered controllers. Kept and handed on; the Raft membership, not this, says who votes.

use super::brokers::Endpoint;
use super::record::Record;
use super::{Decision, Image, MetadataVersion};
use crate::types::{NodeId, Uuid};
use crate::wire::messages::StrBytes;
use crate::wire::messages::metadata::{
    ControllerEndpoint, ControllerFeature, RegisterControllerRecord, UnregisterControllerRecord,
};
use imbl::OrdMap;
use std::sync::Arc;

/// What a starting controller says of itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Registration {
    pub id: NodeId,
    /// Chosen by each process at its start.
    pub incarnation: Uuid,
    /// Its controller listeners, as others are told.
    pub endpoints: Vec<Endpoint>,
    /// The lowest and highest level of each feature that it supports.
    pub features: Vec<(Arc<str>, i16, i16)>,
}

/// The metadata version does not know of controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("metadata.version {0} does not know of controllers")]
pub struct RegisterControllerError(pub MetadataVersion);

/// Registers a controller, in place of what was registered under its id: with nothing to do for the incarnation that is
/// registered.
pub fn register(image: &Image, registration: &Registration) -> Decision<Result<(), RegisterControllerError>> {
    let version = image.metadata_version();
    if !version.has_controller_registrations() {
        return Decision::reply(Err(RegisterControllerError(version)));
    }
    let registered = image.controllers.get(registration.id);
    if registered.is_some_and(|registered| registered.incarnation_id == registration.incarnation) {
        return Decision::reply(Ok(()));
    }
    Decision::new(vec![registration.to_record().into()], Ok(()))
}

/// Why a controller is not forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnregisterControllerError {
    #[error("metadata.version {0} cannot forget controllers")]
    UnsupportedVersion(MetadataVersion),
    #[error("controller {0} is not registered")]
    NotRegistered(NodeId),
}

/// Forgets a controller. Whether it still votes is not looked at.
pub fn unregister(image: &Image, id: NodeId) -> Decision<Result<(), UnregisterControllerError>> {
    let version = image.metadata_version();
    if !version.may_unregister_controllers() {
        return Decision::reply(Err(UnregisterControllerError::UnsupportedVersion(version)));
    }
    if image.controllers.get(id).is_none() {
        return Decision::reply(Err(UnregisterControllerError::NotRegistered(id)));
    }
    let record = UnregisterControllerRecord { controller_id: id.0, ..UnregisterControllerRecord::default() };
    Decision::new(vec![record.into()], Ok(()))
}

impl Registration {
    fn to_record(&self) -> RegisterControllerRecord {
        let text = |text: &str| StrBytes::from_string(text.to_owned());
        let endpoint = |endpoint: &Endpoint| ControllerEndpoint {
            name: text(&endpoint.listener),
            host: text(&endpoint.host),
            port: endpoint.port,
            security_protocol: endpoint.security_protocol,
            ..ControllerEndpoint::default()
        };
        let feature = |(name, min, max): &(Arc<str>, i16, i16)| ControllerFeature {
            name: text(name),
            min_supported_version: *min,
            max_supported_version: *max,
            ..ControllerFeature::default()
        };
        RegisterControllerRecord {
            controller_id: self.id.0,
            incarnation_id: self.incarnation,
            end_points: self.endpoints.iter().map(endpoint).collect(),
            features: self.features.iter().map(feature).collect(),
            ..RegisterControllerRecord::default()
        }
    }
}

/// Controllers by id, as they registered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Controllers {
    by_id: OrdMap<NodeId, Arc<RegisterControllerRecord>>,
}

impl Controllers {
    pub fn get(&self, id: NodeId) -> Option<&RegisterControllerRecord> {
        self.by_id.get(&id).map(Arc::as_ref)
    }

    pub fn iter(&self) -> impl Iterator<Item = (NodeId, &RegisterControllerRecord)> {
        self.by_id.iter().map(|(id, controller)| (*id, controller.as_ref()))
    }

    pub(super) fn register(&mut self, record: &RegisterControllerRecord) {
        self.by_id.insert(NodeId(record.controller_id), Arc::new(record.clone()));
    }

    pub(super) fn unregister(&mut self, record: &UnregisterControllerRecord) {
        self.by_id.remove(&NodeId(record.controller_id));
    }

    pub(super) fn to_records(&self, records: &mut Vec<Record>) {
        records.extend(self.by_id.values().map(|controller| controller.as_ref().clone().into()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::features::bootstrap_records;

    fn image(version: MetadataVersion) -> Image {
        let mut image = Image::default();
        bootstrap_records(version, &[], 1).unwrap().iter().for_each(|record| image.apply(record));
        image
    }

    fn registration(incarnation: u128, port: u16) -> Registration {
        let (listener, host) = (Arc::from("CONTROLLER"), Arc::from("localhost"));
        Registration {
            id: NodeId(3),
            incarnation: Uuid::from_u128(incarnation),
            endpoints: vec![Endpoint { listener, host, port, security_protocol: 0 }],
            features: vec![("metadata.version".into(), 7, 33)],
        }
    }

    #[test]
    fn each_process_registers_once() {
        let mut image = image(MetadataVersion::LATEST);
        for (incarnation, port) in [(1, 9093), (2, 9095)] {
            let Decision { records, reply } = register(&image, &registration(incarnation, port));
            assert_eq!(reply, Ok(()));
            assert_eq!(records.len(), 1);
            image.apply(&records[0]);
            let again = register(&image, &registration(incarnation, port));
            assert_eq!(again, Decision::reply(Ok(())));
            let registered = image.controllers.get(NodeId(3)).unwrap();
            assert_eq!(registered.end_points[0].port, port);
            assert_eq!(registered.features[0].max_supported_version, 33);
        }
        assert_eq!(image.controllers.iter().count(), 1);
    }

    #[test]
    fn a_registered_controller_can_be_forgotten() {
        let mut image = image(MetadataVersion::LATEST);
        let missing = UnregisterControllerError::NotRegistered(NodeId(3));
        assert_eq!(unregister(&image, NodeId(3)), Decision::reply(Err(missing)));
        register(&image.clone(), &registration(1, 9093)).records.iter().for_each(|r| image.apply(r));
        let Decision { records, reply } = unregister(&image, NodeId(3));
        assert_eq!(reply, Ok(()));
        records.iter().for_each(|record| image.apply(record));
        assert_eq!(image.controllers.iter().count(), 0);
        let image = self::image(MetadataVersion::V4_4_IV0);
        let old = UnregisterControllerError::UnsupportedVersion(MetadataVersion::V4_4_IV0);
        assert_eq!(unregister(&image, NodeId(3)), Decision::reply(Err(old)));
    }

    #[test]
    fn an_older_metadata_version_knows_no_controllers() {
        let image = image(MetadataVersion::V3_6_IV0);
        let refused = RegisterControllerError(MetadataVersion::V3_6_IV0);
        assert_eq!(register(&image, &registration(1, 9093)), Decision::reply(Err(refused)));
    }
}
