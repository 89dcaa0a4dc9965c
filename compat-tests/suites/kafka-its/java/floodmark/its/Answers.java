package floodmark.its;

import kafka.log.LogManager;
import kafka.network.SocketServer;
import kafka.raft.KafkaRaftManager;
import kafka.server.BrokerServer;
import kafka.server.ControllerServer;
import kafka.server.KafkaApis;
import kafka.server.KafkaBroker;
import kafka.server.KafkaConfig;
import kafka.server.ReplicaManager;
import kafka.server.SharedServer;

import org.apache.kafka.clients.consumer.GroupProtocol;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.controller.Controller;
import org.apache.kafka.controller.QuorumController;
import org.apache.kafka.controller.ResultOrError;
import org.apache.kafka.coordinator.group.GroupCoordinator;
import org.apache.kafka.image.ClusterImage;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.loader.MetadataLoader;
import org.apache.kafka.metadata.BrokerState;
import org.apache.kafka.metadata.KRaftMetadataCache;
import org.apache.kafka.raft.KafkaRaftClient;
import org.apache.kafka.raft.LogOffsetMetadata;
import org.apache.kafka.raft.RaftLog;
import org.apache.kafka.server.BrokerLifecycleManager;
import org.apache.kafka.server.authorizer.Authorizer;

import org.mockito.Mockito;

import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;

/**
 * Objects with the types of a broker's insides. They know what can be told from outside: settings, ports, whether the process
 * lives, its answers to requests; of logs, {@link Logs}. A method that is not among these is no question for an outsider.
 */
final class Answers {
    static final Object UNKNOWN = new Object();

    interface Method {
        Object call(String name, Object[] arguments) throws Throwable;
    }

    private Answers() { }

    static <T> T object(Class<T> type, Method method) {
        return Mockito.mock(type, Mockito.withSettings().stubOnly().defaultAnswer(call -> {
            String name = call.getMethod().getName();
            if (name.equals("toString"))
                return type.getSimpleName() + " outside";
            Object answer = method.call(name, call.getArguments());
            if (answer == UNKNOWN)
                throw Inapplicable.inside(type.getSimpleName() + "." + name);
            return answer;
        }));
    }

    /** Making such an object takes a while, and most tests want few of them. */
    private static <T> Supplier<T> once(Supplier<T> make) {
        return new Supplier<>() {
            private T made;

            @Override
            public synchronized T get() {
                if (made == null)
                    made = make.get();
                return made;
            }
        };
    }

    static KafkaBroker broker(Cluster cluster, Node node) {
        Supplier<KafkaConfig> config = () -> cluster.current(node);
        Logs answers = new Logs(cluster, node, Cluster.parsed(node));
        Supplier<KRaftMetadataCache> metadata = once(() -> metadata(cluster, node));
        Supplier<SocketServer> sockets = once(() -> sockets(node, config));
        Supplier<KafkaRaftManager<?>> raft = once(() -> raft(cluster, node));
        Supplier<SharedServer> shared = once(() -> shared(raft, config));
        Supplier<GroupCoordinator> groups = once(() -> groups(config.get()));
        Supplier<LogManager> logs = once(() -> answers.manager(config));
        Supplier<ReplicaManager> replicas = once(() -> answers.replicas(logs));
        Supplier<KafkaApis> apis = once(() -> object(KafkaApis.class, (name, arguments) -> switch (name) {
            case "isConsumerGroupProtocolEnabled" -> cluster.supportedGroupProtocols().contains(GroupProtocol.CONSUMER);
            case "brokerId" -> node.id;
            case "clusterId" -> cluster.clusterId();
            case "metadataCache" -> metadata.get();
            default -> UNKNOWN;
        }));
        Supplier<BrokerLifecycleManager> life = once(() -> object(BrokerLifecycleManager.class, (name, arguments) ->
            name.equals("initialUnfenceFuture") && node.alive() ? CompletableFuture.completedFuture(null) : UNKNOWN));
        return object(BrokerServer.class, (name, arguments) -> switch (name) {
            case "config" -> config.get();
            case "clusterId" -> cluster.clusterId();
            case "boundPort" -> node.port(((ListenerName) arguments[0]).value());
            case "brokerState" -> node.alive() ? BrokerState.RUNNING : BrokerState.NOT_RUNNING;
            case "isShutdown" -> !node.alive();
            case "startup" -> done(() -> cluster.startBroker(node.id));
            case "shutdown" -> done(() -> cluster.shutdownBroker(node.id));
            case "awaitShutdown" -> done(() -> node.awaitEnd(60));
            case "metadataCache" -> metadata.get();
            case "socketServer" -> sockets.get();
            case "sharedServer" -> shared.get();
            case "raftManager" -> raft.get();
            case "lifecycleManager" -> life.get();
            case "groupCoordinator" -> groups.get();
            case "dataPlaneRequestProcessor" -> apis.get();
            case "logManager" -> logs.get();
            case "replicaManager" -> replicas.get();
            default -> UNKNOWN;
        });
    }

    static ControllerServer controller(Cluster cluster, Node node) {
        Supplier<KafkaConfig> config = once(() -> Cluster.parsed(node));
        Supplier<SocketServer> sockets = once(() -> sockets(node, config));
        Supplier<KafkaRaftManager<?>> raft = once(() -> raft(cluster, node));
        Supplier<SharedServer> shared = once(() -> shared(raft, config));
        Supplier<Controller> controller = once(() -> object(QuorumController.class, (name, arguments) -> switch (name) {
            case "nodeId" -> node.id;
            case "isActive" -> cluster.leaderAndEpoch(node).isLeader(node.id);
            case "findAllTopicIds" -> CompletableFuture.completedFuture(Ask.topicIds(cluster.brokerBoundPorts().get(0)));
            case "findTopicIds" -> CompletableFuture.completedFuture(found((Collection<?>) arguments[1],
                Ask.topicIds(cluster.brokerBoundPorts().get(0))));
            default -> UNKNOWN;
        }));
        return object(ControllerServer.class, (name, arguments) -> switch (name) {
            case "config" -> config.get();
            case "clusterId" -> cluster.clusterId();
            case "socketServer" -> sockets.get();
            case "sharedServer" -> shared.get();
            case "raftManager" -> raft.get();
            case "controller" -> controller.get();
            case "startup" -> done(() -> cluster.startNode(node));
            case "shutdown" -> done(node::terminate);
            case "awaitShutdown" -> done(() -> node.awaitEnd(60));
            default -> UNKNOWN;
        });
    }

    private static Map<String, ResultOrError<Uuid>> found(Collection<?> names, Map<String, Uuid> ids) {
        Map<String, ResultOrError<Uuid>> found = new HashMap<>();
        names.forEach(name -> found.put((String) name, ids.containsKey(name) ? new ResultOrError<>(ids.get(name))
            : new ResultOrError<>(Errors.UNKNOWN_TOPIC_OR_PARTITION, null)));
        return found;
    }

    static KafkaRaftManager<?> raft(Cluster cluster, Node node) {
        RaftLog log = object(RaftLog.class, (name, arguments) -> name.equals("endOffset") ? new LogOffsetMetadata(0) : UNKNOWN);
        KafkaRaftClient<?> client = object(KafkaRaftClient.class, (name, arguments) ->
            name.equals("leaderAndEpoch") ? cluster.leaderAndEpoch(node)
                : name.equals("shutdown") ? CompletableFuture.runAsync(node::terminate) : UNKNOWN);
        return object(KafkaRaftManager.class, (name, arguments) -> switch (name) {
            case "raftLog" -> log;
            case "client" -> client;
            case "shutdown" -> done(node::terminate);
            default -> UNKNOWN;
        });
    }

    static Authorizer authorizer(Cluster cluster) {
        return object(Authorizer.class, (name, arguments) ->
            name.equals("acls") ? cluster.acls((AclBindingFilter) arguments[0]) : UNKNOWN);
    }

    private static Object done(Runnable work) {
        work.run();
        return null;
    }

    private static SocketServer sockets(Node node, Supplier<KafkaConfig> config) {
        return object(SocketServer.class, (name, arguments) -> switch (name) {
            case "boundPort" -> node.port(((ListenerName) arguments[0]).value());
            case "config" -> config.get();
            default -> UNKNOWN;
        });
    }

    /** Tells that everything is applied, after the pause in which it will be. */
    private static SharedServer shared(Supplier<KafkaRaftManager<?>> raft, Supplier<KafkaConfig> config) {
        MetadataLoader loader = object(MetadataLoader.class, (name, arguments) -> {
            if (!name.equals("lastAppliedOffset"))
                return UNKNOWN;
            Thread.sleep(100);
            return Long.MAX_VALUE;
        });
        return object(SharedServer.class, (name, arguments) -> switch (name) {
            case "loader" -> loader;
            case "raftManager" -> raft.get();
            case "controllerConfig" -> config.get();
            default -> UNKNOWN;
        });
    }

    private static GroupCoordinator groups(KafkaConfig config) {
        Properties topic = new Properties();
        topic.put("cleanup.policy", "compact");
        topic.put("compression.type", "producer");
        topic.put("segment.bytes", String.valueOf(config.getInt("offsets.topic.segment.bytes")));
        return object(GroupCoordinator.class, (name, arguments) -> name.equals("groupMetadataTopicConfigs") ? topic : UNKNOWN);
    }

    private static KRaftMetadataCache metadata(Cluster cluster, Node node) {
        return object(KRaftMetadataCache.class, (name, arguments) -> {
            int port = cluster.clientPort(cluster.speaker(node));
            return switch (name) {
                case "numPartitions" -> Ask.partitions(port, (String) arguments[0]);
                case "contains" -> arguments[0] instanceof TopicPartition partition
                    ? Ask.partitions(port, partition.topic()).orElse(0) > partition.partition()
                    : Ask.partitions(port, (String) arguments[0]).isPresent();
                case "getLeaderAndIsr" -> Ask.leader(port, (String) arguments[0], (int) arguments[1]);
                case "getAllTopics" -> new HashSet<>(Ask.topicIds(port).keySet());
                case "getTopicId" -> Ask.topicIds(port).getOrDefault((String) arguments[0], Uuid.ZERO_UUID);
                case "topicNamesToIds" -> Ask.topicIds(port);
                case "topicIdsToNames" -> turned(Ask.topicIds(port));
                case "hasAliveBroker" -> Ask.brokers(port).brokersById().containsKey((int) arguments[0]);
                case "getAliveBrokerNodes", "getBrokerNodes" -> arguments[0].equals(cluster.clientListener())
                    ? List.copyOf(Ask.brokers(port).brokers()) : UNKNOWN;
                case "getAliveBrokerNode" -> arguments[1].equals(cluster.clientListener())
                    ? Optional.ofNullable(Ask.brokers(port).brokersById().get((int) arguments[0])) : UNKNOWN;
                case "getPartitionLeaderEndpoint" -> arguments[2].equals(cluster.clientListener())
                    ? Ask.leader(port, (String) arguments[0], (int) arguments[1])
                        .map(state -> Ask.brokersNow(port).brokersById().get(state.leader())) : UNKNOWN;
                case "getPartitionReplicaEndpoints" -> arguments[1].equals(cluster.clientListener())
                    ? Ask.replicas(port, (TopicPartition) arguments[0]) : UNKNOWN;
                case "topicConfig" -> Ask.ownTopicConfig(port, (String) arguments[0]);
                case "metadataVersion" -> Ask.features(port).metadataVersionOrThrow();
                case "currentImage" -> image(port);
                default -> UNKNOWN;
            };
        });
    }

    /** Of the metadata as this broker knows it, the features, and which brokers are registered. */
    private static MetadataImage image(int port) {
        return object(MetadataImage.class, (name, arguments) -> switch (name) {
            case "features" -> Ask.features(port);
            case "cluster" -> object(ClusterImage.class, (asked, none) -> asked.equals("brokers") ? Ask.registered(port) : UNKNOWN);
            default -> UNKNOWN;
        });
    }

    private static Map<Uuid, String> turned(Map<String, Uuid> ids) {
        Map<Uuid, String> names = new HashMap<>();
        ids.forEach((name, id) -> names.put(id, name));
        return names;
    }
}
