package floodmark.its;

import org.apache.kafka.clients.consumer.GroupProtocol;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.server.common.Feature;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.regex.Pattern;
import java.util.stream.Collectors;

/** Makes a node's settings from what a test asks for. Starts nothing. */
final class Settings {
    private static final Pattern CLASS_NAME = Pattern.compile("([a-z_0-9]+\\.)+[A-Z][A-Za-z0-9_$]*");

    private Settings() { }

    static Map<String, String> of(ClusterConfig config, int id, boolean broker, boolean controller, String quorum, Path folder)
            throws IOException {
        if (config.brokerSecurityProtocol() != SecurityProtocol.PLAINTEXT || config.controllerSecurityProtocol() != SecurityProtocol.PLAINTEXT)
            throw Inapplicable.because("a listener other than PLAINTEXT");
        String client = config.brokerListenerName().value();
        String control = config.controllerListenerName().value();
        Map<String, String> all = new TreeMap<>(config.serverProperties());
        all.putAll(config.perServerOverrideProperties().getOrDefault(id, Map.of()));
        List<String> roles = new ArrayList<>();
        List<String> listeners = new ArrayList<>();
        if (broker) {
            roles.add("broker");
            listeners.add(client + "://localhost:0");
            all.remove("controller.quorum.auto.join.enable");
        }
        if (controller) {
            roles.add("controller");
            listeners.add(control + "://localhost:0");
        }
        List<String> directories = new ArrayList<>();
        for (int disk = 0; disk < (broker ? config.numDisksPerBroker() : 1); disk++)
            directories.add(Files.createDirectories(folder.resolve("node-" + id + "-disk" + disk)).toString());
        all.put("process.roles", String.join(",", roles));
        all.put("node.id", String.valueOf(id));
        all.put("log.dirs", String.join(",", directories));
        all.put("metadata.log.dir", directories.get(0));
        all.put(quorum.contains("@") ? "controller.quorum.voters" : "controller.quorum.bootstrap.servers", quorum);
        all.putIfAbsent("listeners", String.join(",", listeners));
        all.putIfAbsent("listener.security.protocol.map", client + ":PLAINTEXT," + control + ":PLAINTEXT");
        all.putIfAbsent("inter.broker.listener.name", client);
        all.putIfAbsent("controller.listener.names", control);
        all.putIfAbsent("log.cleaner.dedupe.buffer.size", "2097152");
        all.putIfAbsent("unstable.feature.versions.enable", "true");
        return all;
    }

    /** Gives every listener at port 0 a port; a broker would choose one itself, but nobody out here would know it. */
    static void choosePorts(Map<String, String> settings, Map<String, Integer> ports) {
        for (String name : List.of("listeners", "advertised.listeners")) {
            if (settings.containsKey(name))
                settings.put(name, Pattern.compile(",").splitAsStream(settings.get(name)).map(one -> {
                    String listener = one.trim().substring(0, one.trim().indexOf("://")).toUpperCase(Locale.ROOT);
                    int colon = one.lastIndexOf(':');
                    int port = Integer.parseInt(one.substring(colon + 1).trim());
                    int chosen = port == 0 ? ports.computeIfAbsent(listener, l -> Node.freePort()) : port;
                    ports.putIfAbsent(listener, chosen);
                    return one.substring(0, colon + 1).trim() + chosen;
                }).collect(Collectors.joining(",")));
        }
    }

    /** A class of Kafka's test jars as a setting is Java code that the test wants inside the broker. */
    static void refusePlugins(Map<String, String> settings) {
        settings.forEach((name, list) -> {
            for (String value : list.split(",")) {
                if (!CLASS_NAME.matcher(value.trim()).matches())
                    continue;
                try {
                    Class<?> type = Class.forName(value.trim(), false, Settings.class.getClassLoader());
                    if (type.getProtectionDomain().getCodeSource().getLocation().getPath().endsWith("-test.jar"))
                        throw Inapplicable.because("wants Java code of the test inside the broker: " + name);
                } catch (ClassNotFoundException | LinkageError other) {
                    continue;
                }
            }
        });
    }

    /** What the node's launcher formats its directories with. */
    static Map<String, String> format(ClusterConfig config, String clusterId, String voters) {
        Map<String, String> environment = new LinkedHashMap<>();
        environment.put("CLUSTER_ID", clusterId);
        environment.put("METADATA_VERSION", config.metadataVersion().version());
        environment.put("FEATURES", config.features().entrySet().stream()
            .map(e -> e.getKey().featureName() + "=" + e.getValue()).sorted().collect(Collectors.joining(" ")));
        environment.put("INITIAL_CONTROLLERS", voters);
        return environment;
    }

    static String voters(Map<Integer, Uuid> directories, Map<Integer, Integer> controllerPorts) {
        return directories.entrySet().stream()
            .map(e -> e.getKey() + "@localhost:" + controllerPorts.get(e.getKey()) + ":" + e.getValue())
            .collect(Collectors.joining(","));
    }

    static Set<GroupProtocol> groupProtocols(ClusterConfig config) {
        Short asked = config.features().get(Feature.GROUP_VERSION);
        int level = asked != null ? asked : Feature.GROUP_VERSION.defaultLevel(config.metadataVersion());
        String protocols = config.serverProperties().getOrDefault("group.coordinator.rebalance.protocols", "classic,consumer");
        return level > 0 && protocols.contains("consumer")
            ? Set.of(GroupProtocol.CLASSIC, GroupProtocol.CONSUMER) : Set.of(GroupProtocol.CLASSIC);
    }
}
