//! Client quotas by entity. Kept and handed on; which quota applies to a client is decided elsewhere.

use super::record::Record;
use crate::wire::messages::StrBytes;
use crate::wire::messages::metadata::{ClientQuotaRecord, EntityData};
use imbl::OrdMap;
use std::sync::Arc;

/// Whom a quota is for: entity types (user, client-id, ip) with their names, none for the default, ordered by type.
pub type QuotaEntity = Vec<(Arc<str>, Option<Arc<str>>)>;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Quotas {
    by_entity: OrdMap<QuotaEntity, OrdMap<Arc<str>, f64>>,
}

impl Quotas {
    pub(super) fn apply(&mut self, record: &ClientQuotaRecord) {
        let name = |part: &EntityData| part.entity_name.as_deref().map(Arc::from);
        let mut entity: QuotaEntity =
            record.entity.iter().map(|part| (Arc::from(&*part.entity_type), name(part))).collect();
        entity.sort();
        let mut values = self.by_entity.get(&entity).cloned().unwrap_or_default();
        if record.remove {
            values.remove(&*record.key);
        } else {
            values.insert(Arc::from(&*record.key), record.value);
        }
        if values.is_empty() {
            self.by_entity.remove(&entity);
        } else {
            self.by_entity.insert(entity, values);
        }
    }

    pub(super) fn to_records(&self, records: &mut Vec<Record>) {
        for (entity, values) in &self.by_entity {
            let entity: Vec<EntityData> = entity
                .iter()
                .map(|(entity_type, name)| EntityData {
                    entity_type: StrBytes::from_string(entity_type.to_string()),
                    entity_name: name.as_ref().map(|name| StrBytes::from_string(name.to_string())),
                    ..EntityData::default()
                })
                .collect();
            records.extend(values.iter().map(|(key, value)| {
                ClientQuotaRecord {
                    entity: entity.clone(),
                    key: StrBytes::from_string(key.to_string()),
                    value: *value,
                    ..ClientQuotaRecord::default()
                }
                .into()
            }));
        }
    }
}
