//! What the scripts in Kafka's Docker image do before they start it, as a rearrangement of the sources, so that a container
//! of ours takes the settings that were written for one of theirs.
//!
//! Invariant: what somebody has said wins over everything that is filled in here.

use std::path::{Path, PathBuf};

use super::{Sources, env};

/// A file that is mounted here is the configuration.
const MOUNTED: &str = "/mnt/shared/config/server.properties";
/// The configuration of a container that is told nothing: a node that stands alone.
const DEFAULT: &str = "/etc/kafka/docker/server.properties";
/// The cluster of a container that is told none. All of them have it, so nodes that are to be one cluster are one.
const CLUSTER_ID: &str = "5L6g3nShT-eMCtK--X86sw";
/// Where Kafka's image keeps data that nobody gave a place. They are not in our image: if one is there, it was mounted.
const KAFKAS_DATA: &[&str] = &["/tmp/kraft-combined-logs", "/tmp/kafka-logs"];
/// Where ours keeps it: on a volume.
const DATA: &str = "/var/lib/kafka/data";

impl Sources {
    /// These sources as Kafka's Docker image would take them.
    #[must_use]
    pub fn as_in_kafkas_image(self) -> Sources {
        arrange(self, &|path| path.exists())
    }
}

fn arrange(mut sources: Sources, exists: &dyn Fn(&Path) -> bool) -> Sources {
    let is_told = sources.env.iter().any(|(variable, _)| env::property_name(variable).is_some());
    if sources.file.is_none() {
        let file = if exists(Path::new(MOUNTED)) { Some(MOUNTED) } else { (!is_told).then_some(DEFAULT) };
        sources.file = file.map(PathBuf::from);
    }
    let has_own_file = sources.file.as_deref().is_some_and(|file| file != Path::new(DEFAULT));
    let is_controller_alone = sources.variable("KAFKA_PROCESS_ROLES") == Some("controller");
    if let Some(advertised) = sources.variable("KAFKA_ADVERTISED_LISTENERS").filter(|_| !is_controller_alone)
    {
        let everywhere = on_every_interface(advertised);
        sources.fill_in("KAFKA_LISTENERS", everywhere);
    }
    sources.fill_in("CLUSTER_ID", CLUSTER_ID.to_owned());
    if !has_own_file && sources.variable("KAFKA_LOG_DIR").is_none() {
        let mounted = KAFKAS_DATA.iter().find(|dir| exists(Path::new(dir)));
        sources.fill_in("KAFKA_LOG_DIRS", (*mounted.unwrap_or(&DATA)).to_owned());
    }
    sources
}

impl Sources {
    fn fill_in(&mut self, name: &str, value: String) {
        if self.variable(name).is_none() {
            self.env.retain(|(variable, _)| variable != name);
            self.env.push((name.to_owned(), value));
        }
    }
}

/// Listeners on the ports of these, for connections from everywhere.
fn on_every_interface(advertised: &str) -> String {
    let one = |listener: &str| match listener.split_once("://") {
        Some((name, address)) => match address.rsplit_once(':') {
            Some((_, port)) => format!("{name}://0.0.0.0:{port}"),
            None => listener.to_owned(),
        },
        None => listener.to_owned(),
    };
    advertised.split(',').map(one).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arranged(env: &[(&str, &str)], there: &[&str]) -> Sources {
        let env = env.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        arrange(Sources { env, ..Sources::default() }, &|path| {
            there.iter().any(|known| path == Path::new(known))
        })
    }

    #[test]
    fn a_container_that_is_told_nothing_has_the_default_file() {
        let sources = arranged(&[("PATH", "/bin")], &[]);
        assert_eq!(sources.file.as_deref(), Some(Path::new(DEFAULT)));
        assert_eq!(sources.variable("CLUSTER_ID"), Some(CLUSTER_ID));
        assert_eq!(sources.variable("KAFKA_LOG_DIRS"), Some(DATA));
    }

    #[test]
    fn settings_in_the_environment_stand_alone_or_on_a_mounted_file() {
        let told = [("KAFKA_NODE_ID", "4"), ("CLUSTER_ID", "abc")];
        let sources = arranged(&told, &[]);
        assert_eq!(sources.file, None);
        assert_eq!(sources.variable("CLUSTER_ID"), Some("abc"));
        let sources = arranged(&told, &[MOUNTED]);
        assert_eq!(sources.file.as_deref(), Some(Path::new(MOUNTED)));
        assert_eq!(sources.variable("KAFKA_LOG_DIRS"), None, "the file says where data is");
    }

    #[test]
    fn a_broker_listens_everywhere_on_the_ports_that_it_advertises() {
        let advertised = ("KAFKA_ADVERTISED_LISTENERS", "PLAINTEXT://broker:19092,HOST://localhost:9092");
        let listeners =
            |env: &[(&str, &str)]| arranged(env, &[]).variable("KAFKA_LISTENERS").map(str::to_owned);
        let everywhere = Some("PLAINTEXT://0.0.0.0:19092,HOST://0.0.0.0:9092".to_owned());
        assert_eq!(listeners(&[advertised]), everywhere);
        assert_eq!(listeners(&[advertised, ("KAFKA_LISTENERS", "")]), everywhere);
        assert_eq!(listeners(&[advertised, ("KAFKA_LISTENERS", "A://:1")]), Some("A://:1".to_owned()));
        assert_eq!(listeners(&[advertised, ("KAFKA_PROCESS_ROLES", "controller")]), None);
    }

    #[test]
    fn data_is_where_a_volume_was_mounted_for_kafkas_image() {
        let log_dirs = |env: &[(&str, &str)], there: &[&str]| {
            arranged(env, there).variable("KAFKA_LOG_DIRS").map(str::to_owned)
        };
        assert_eq!(
            log_dirs(&[("KAFKA_NODE_ID", "1")], &["/tmp/kafka-logs"]),
            Some("/tmp/kafka-logs".to_owned())
        );
        assert_eq!(log_dirs(&[("KAFKA_LOG_DIRS", "/data")], &["/tmp/kafka-logs"]), Some("/data".to_owned()));
        assert_eq!(log_dirs(&[("KAFKA_LOG_DIR", "/data")], &[]), None);
    }
}
