package org.apache.kafka.common.test;

import floodmark.its.Cluster;

import kafka.raft.KafkaRaftManager;
import kafka.server.BrokerServer;
import kafka.server.ControllerServer;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.Type;
import org.apache.kafka.controller.Controller;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.Feature;
import org.apache.kafka.server.common.MetadataVersion;

import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.IntStream;
import java.util.stream.Stream;

/** In the place of Kafka's class of this name, with which tests of Streams, of Connect and of the server make a cluster. */
public class KafkaClusterTestKit implements AutoCloseable {
    public static class Builder {
        private final TestKitNodes nodes;
        private final Map<String, String> settings = new HashMap<>();
        private Map<Integer, Uuid> voters = Map.of();
        private boolean standalone;

        public Builder(TestKitNodes nodes) {
            this.nodes = nodes;
        }

        public Builder setConfigProp(String key, Object value) {
            settings.put(key, String.valueOf(value));
            return this;
        }

        public Builder setStandalone(boolean value) {
            standalone = value;
            return this;
        }

        public Builder setInitialVoterSet(Map<Integer, Uuid> value) {
            voters = new TreeMap<>(value);
            return this;
        }

        public Builder setDeleteOnClose(boolean ignored) {
            return this;
        }

        public KafkaClusterTestKit build() throws Exception {
            Type type = Stream.of(nodes.brokerNodes(), nodes.controllerNodes()).flatMap(some -> some.keySet().stream())
                .anyMatch(nodes::isCombined) ? Type.CO_KRAFT : Type.KRAFT;
            Map<Integer, Map<String, String>> own = new HashMap<>();
            nodes.controllerNodes().forEach((id, node) -> own.put(id, new HashMap<>(node.propertyOverrides())));
            nodes.brokerNodes().forEach((id, node) ->
                own.computeIfAbsent(id, none -> new HashMap<>()).putAll(node.propertyOverrides()));
            IntStream disks = nodes.brokerNodes().values().stream().mapToInt(node -> node.logDataDirectories().size());
            ClusterConfig config = ClusterConfig.builder().setTypes(Set.of(type)).setAutoStart(false).setStandalone(standalone)
                .setBrokers(nodes.brokerNodes().size()).setControllers(nodes.controllerNodes().size())
                .setDisksPerBroker(disks.max().orElse(1)).setServerProperties(settings).setPerServerProperties(own)
                .setBrokerListenerName(nodes.brokerListenerName()).setBrokerSecurityProtocol(nodes.brokerListenerProtocol())
                .setControllerListenerName(nodes.controllerListenerName())
                .setControllerSecurityProtocol(nodes.controllerListenerProtocol())
                .setMetadataVersion(nodes.bootstrapMetadata().metadataVersion()).setFeatures(features()).build();
            Map<Integer, Uuid> directories = new HashMap<>();
            nodes.controllerNodes().forEach((id, node) -> directories.put(id, node.metadataDirectoryId()));
            Cluster cluster = new Cluster(config, type, nodes.clusterId(), voters, directories);
            cluster.layOut("kit");
            return new KafkaClusterTestKit(nodes, cluster);
        }

        private Map<Feature, Short> features() {
            MetadataVersion version = nodes.bootstrapMetadata().metadataVersion();
            Map<Feature, Short> levels = new HashMap<>();
            for (Feature feature : Feature.PRODUCTION_FEATURES) {
                short level = nodes.bootstrapMetadata().featureLevel(feature.featureName());
                if (feature != Feature.KRAFT_VERSION && level != feature.defaultLevel(version))
                    levels.put(feature, level);
            }
            return levels;
        }
    }

    private final TestKitNodes nodes;
    private final Cluster cluster;
    private final MockFaultHandler fatal = new MockFaultHandler("fatal");
    private final MockFaultHandler other = new MockFaultHandler("other");

    private KafkaClusterTestKit(TestKitNodes nodes, Cluster cluster) {
        this.nodes = nodes;
        this.cluster = cluster;
    }

    public void format() { }

    public void startup() {
        cluster.start();
    }

    public void waitForReadyBrokers() {
        cluster.waitForReadyBrokers();
    }

    @Override
    public void close() {
        cluster.stop();
    }

    public Admin admin() {
        return cluster.admin();
    }

    public Admin admin(Map<String, Object> configs) {
        return cluster.admin(configs);
    }

    public Admin admin(Map<String, Object> configs, boolean byControllers) {
        return cluster.admin(configs, byControllers);
    }

    public String bootstrapServers() {
        return cluster.bootstrapServers();
    }

    public String bootstrapControllers() {
        return cluster.bootstrapControllers();
    }

    public Map<Integer, BrokerServer> brokers() {
        Map<Integer, BrokerServer> all = new TreeMap<>();
        cluster.brokers().forEach((id, broker) -> all.put(id, (BrokerServer) broker));
        return all;
    }

    public Map<Integer, ControllerServer> controllers() {
        return cluster.controllers();
    }

    public Controller waitForActiveController() throws InterruptedException {
        return controllers().get(cluster.activeController()).controller();
    }

    @SuppressWarnings("unchecked")
    public Map<Integer, KafkaRaftManager<ApiMessageAndVersion>> raftManagers() {
        Map<Integer, KafkaRaftManager<ApiMessageAndVersion>> all = new TreeMap<>();
        cluster.raftManagers().forEach((id, manager) -> all.put(id, (KafkaRaftManager<ApiMessageAndVersion>) manager));
        return all;
    }

    public TestKitNodes nodes() {
        return nodes;
    }

    public MockFaultHandler fatalFaultHandler() {
        return fatal;
    }

    public MockFaultHandler nonFatalFaultHandler() {
        return other;
    }
}
