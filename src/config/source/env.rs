//! Environment variables as settings, by the rules of Kafka's Docker image. Knows no property. Invariant: a variable
//! meant for Kafka's scripts is not taken for a setting.

/// Variables that Kafka's scripts and images read themselves.
const NOT_SETTINGS: &[&str] = &[
    "KAFKA_CLUSTER_ID",
    "KAFKA_DEBUG",
    "KAFKA_GC_LOG_OPTS",
    "KAFKA_HEAP_OPTS",
    "KAFKA_HOME",
    "KAFKA_JMX_HOSTNAME",
    "KAFKA_JMX_OPTS",
    "KAFKA_JMX_PORT",
    "KAFKA_JVM_PERFORMANCE_OPTS",
    "KAFKA_LOG4J_CMD_OPTS",
    "KAFKA_LOG4J_LOGGERS",
    "KAFKA_LOG4J_OPTS",
    "KAFKA_LOG4J_ROOT_LOGLEVEL",
    "KAFKA_MODE",
    "KAFKA_OPTS",
    "KAFKA_TOOLS_LOG4J_LOGLEVEL",
    "KAFKA_VERSION",
];

/// The property that the environment variable `variable` sets, if it sets one: after `KAFKA_`, in lower case, `_` stands
/// for a dot, `__` for an underscore and `___` for a hyphen.
pub(super) fn property_name(variable: &str) -> Option<String> {
    let name = variable.strip_prefix("KAFKA_").filter(|name| !name.is_empty())?;
    if NOT_SETTINGS.contains(&variable) {
        return None;
    }
    Some(name.to_lowercase().replace('_', ".").replace("...", "-").replace("..", "_"))
}

#[cfg(test)]
mod tests {
    use super::property_name;

    #[test]
    fn underscores_stand_for_dots_underscores_and_hyphens() {
        let name = |variable| property_name(variable).unwrap();
        assert_eq!(name("KAFKA_LOG_DIRS"), "log.dirs");
        assert_eq!(name("KAFKA_A__B"), "a_b");
        assert_eq!(name("KAFKA_A___B"), "a-b");
        assert_eq!(
            name("KAFKA_LISTENER_NAME_X_SCRAM___SHA___256_SASL_JAAS_CONFIG"),
            "listener.name.x.scram-sha-256.sasl.jaas.config"
        );
    }

    #[test]
    fn what_kafkas_scripts_read_sets_nothing() {
        for variable in
            ["KAFKA_HEAP_OPTS", "KAFKA_OPTS", "KAFKA_LOG4J_OPTS", "KAFKA_HOME", "KAFKA_", "HOME", "kafka_x"]
        {
            assert_eq!(property_name(variable), None, "{variable}");
        }
    }
}
