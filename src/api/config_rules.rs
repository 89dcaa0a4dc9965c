//! What the decisions on dynamic configuration ask of the table of properties, put together from the configuration of this
//! node.

use crate::broker::dynamic_config::{overrides, texts};
use crate::config::{AlterError, ConfigType, DefaultValue, Layers, Scope, table, validate_client_metrics};
use crate::metadata::Image;
use crate::metadata::configs::{ConfigResource, ConfigRules, ConfigValues, ResourceType};

type IsList<'a> = Box<dyn Fn(ResourceType, &str) -> bool + 'a>;
type Default<'a> = Box<dyn Fn(ResourceType, &str) -> Option<String> + 'a>;
type Validate<'a> = Box<dyn Fn(&ConfigResource, &ConfigValues) -> Result<(), AlterError> + 'a>;

/// The rules with the closures that they borrow.
pub struct Rules<'a> {
    is_list: IsList<'a>,
    default: Default<'a>,
    validate: Validate<'a>,
}

impl<'a> Rules<'a> {
    pub fn new(layers: &'a Layers, image: &'a Image) -> Rules<'a> {
        Rules {
            is_list: Box::new(|kind, key| {
                table(scope(kind)).get(key).is_some_and(|def| def.kind == ConfigType::List)
            }),
            default: Box::new(|kind, key| {
                let def = table(scope(kind)).get(key)?;
                match def.default {
                    DefaultValue::Required => None,
                    _ => def.default_text().map(str::to_owned),
                }
            }),
            validate: Box::new(move |resource, values| validate(layers, image, resource, values)),
        }
    }

    pub fn rules(&self) -> ConfigRules<'_> {
        ConfigRules { is_list: &*self.is_list, default: &*self.default, validate: &*self.validate }
    }
}

fn scope(kind: ResourceType) -> Scope {
    match kind {
        ResourceType::Topic => Scope::Topic,
        ResourceType::Broker => Scope::Broker,
        ResourceType::ClientMetrics => Scope::ClientMetrics,
        ResourceType::Group => Scope::Group,
    }
}

fn validate(
    layers: &Layers,
    image: &Image,
    resource: &ConfigResource,
    values: &ConfigValues,
) -> Result<(), AlterError> {
    let new = texts(values);
    match resource.kind {
        ResourceType::Topic => layers.validate_topic(&overrides(image, resource), &new),
        ResourceType::Broker if resource.name.is_empty() => layers.validate_cluster_default(&new),
        ResourceType::Broker if layers.are_of(&resource.name) => layers.validate_broker(&new),
        ResourceType::Broker => Layers::validate_other_broker(&overrides(image, resource), &new),
        ResourceType::ClientMetrics => validate_client_metrics(&new),
        ResourceType::Group => layers.validate_group(&new),
    }
}
