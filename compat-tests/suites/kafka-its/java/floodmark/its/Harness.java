package floodmark.its;

import kafka.server.KafkaBroker;
import kafka.server.KafkaConfig;

import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.Type;
import org.apache.kafka.metadata.storage.Formatter;
import org.apache.kafka.server.common.Feature;
import org.apache.kafka.server.common.MetadataVersion;

import java.io.IOException;
import java.lang.reflect.Field;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** Clusters of the older Scala tests: one controller, and brokers that the test adds one after the other. */
public final class Harness {
    private static final String CONTROLLER = "CONTROLLER";
    private final Cluster cluster;
    private final ClusterConfig config;
    private final Node controller;

    public Harness(String test, MetadataVersion version, Map<Feature, Short> features, Map<String, String> asked) {
        config = ClusterConfig.builder().setTypes(Set.of(Type.KRAFT)).setBrokers(0).setControllers(1).setDisksPerBroker(1)
            .setAutoStart(false).setBrokerListenerName(new ListenerName("PLAINTEXT")).setBrokerSecurityProtocol(SecurityProtocol.PLAINTEXT)
            .setControllerListenerName(new ListenerName(CONTROLLER)).setControllerSecurityProtocol(SecurityProtocol.PLAINTEXT)
            .setMetadataVersion(version).setFeatures(features).build();
        cluster = new Cluster(config, Type.KRAFT);
        try {
            cluster.makeFolder(test);
            int id = Integer.parseInt(asked.getOrDefault("node.id", "1000"));
            int port = Node.freePort();
            Path directory = Files.createDirectories(cluster.folder().resolve("node-" + id + "-disk0"));
            Map<String, String> settings = new HashMap<>(asked);
            settings.putAll(Map.of("node.id", "" + id, "process.roles", "controller", "log.dirs", directory.toString(),
                "metadata.log.dir", directory.toString(), "listeners", CONTROLLER + "://localhost:" + port,
                "listener.security.protocol.map", CONTROLLER + ":PLAINTEXT", "controller.listener.names", CONTROLLER,
                "controller.quorum.voters", id + "@localhost:" + port));
            settings.putIfAbsent("unstable.feature.versions.enable", "true");
            controller = cluster.add(new Node(id, settings, Map.of(CONTROLLER, port), format(), cluster.folder()));
            controller.start();
            cluster.markStarted();
            cluster.awaitReady();
        } catch (IOException | RuntimeException e) {
            cluster.stop();
            throw e instanceof RuntimeException plain ? plain : new RuntimeException(e);
        }
    }

    private Map<String, String> format() {
        return Settings.format(config, cluster.clusterId(), "static");
    }

    public KafkaBroker addBroker(KafkaConfig asked, boolean start) {
        Map<String, String> settings = new HashMap<>();
        asked.originals().forEach((name, value) -> settings.put(name, String.valueOf(value)));
        for (String listener : settings.getOrDefault("listener.security.protocol.map", "").split(","))
            if (!listener.isEmpty() && !listener.endsWith(":PLAINTEXT"))
                throw Inapplicable.because("a listener other than PLAINTEXT");
        Settings.refusePlugins(settings);
        Map<String, Integer> ports = new LinkedHashMap<>();
        ports.put(CONTROLLER, cluster.controllerPort(controller));
        Settings.choosePorts(settings, ports);
        settings.put("controller.quorum.voters", controller.settings.get("controller.quorum.voters"));
        // Some are relative to where this JVM runs, which need not be where the node does.
        List<String> directories = asked.logDirs().stream().map(directory -> Path.of(directory).toAbsolutePath().toString()).toList();
        settings.put("log.dirs", String.join(",", directories));
        try {
            for (String directory : directories)
                Files.createDirectories(Path.of(directory));
            cluster.add(new Node(asked.nodeId(), settings, ports, format(), cluster.folder()));
        } catch (IOException e) {
            throw new RuntimeException(e);
        }
        if (start)
            cluster.startBroker(asked.nodeId());
        return cluster.brokerStandIn(asked.nodeId());
    }

    public Cluster cluster() {
        return cluster;
    }

    public void stopController() {
        cluster.stopControllers();
    }

    /** Whether a test wants users in the metadata from the beginning; there is no method that tells it. */
    public static boolean hasUsers(Formatter formatter) {
        try {
            Field users = Formatter.class.getDeclaredField("scramArguments");
            users.setAccessible(true);
            return !((List<?>) users.get(formatter)).isEmpty();
        } catch (ReflectiveOperationException none) {
            return false;
        }
    }

    public static RuntimeException inapplicable(String reason) {
        return Inapplicable.because(reason);
    }
}
