package floodmark.its;

import kafka.cluster.Partition;
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
import org.apache.kafka.controller.Controller;
import org.apache.kafka.coordinator.group.GroupCoordinator;
import org.apache.kafka.image.loader.MetadataLoader;
import org.apache.kafka.metadata.BrokerState;
import org.apache.kafka.metadata.KRaftMetadataCache;
import org.apache.kafka.metadata.LeaderAndIsr;
import org.apache.kafka.raft.LogOffsetMetadata;
import org.apache.kafka.raft.RaftLog;
import org.apache.kafka.server.authorizer.Authorizer;
import org.apache.kafka.storage.internals.log.UnifiedLog;

import org.mockito.Mockito;

import java.io.File;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;

import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Objects with the types of a broker's insides. They know what can be told from outside: settings, ports, whether the process
 * lives, its Metadata answer, whether a partition has a folder. A method that is not among these is no question for an outsider.
 */
final class Answers {
    private static final Object UNKNOWN = new Object();

    private interface Method {
        Object call(String name, Object[] arguments) throws Throwable;
    }

    private Answers() { }

    private static <T> T object(Class<T> type, Method method) {
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
        Supplier<KafkaConfig> config = once(() -> Cluster.parsed(node));
        Supplier<KRaftMetadataCache> metadata = once(() -> metadata(cluster, node));
        Supplier<SocketServer> sockets = once(() -> sockets(node));
        Supplier<SharedServer> shared = once(Answers::shared);
        Supplier<GroupCoordinator> groups = once(() -> groups(config.get()));
        Supplier<LogManager> logs = once(() -> logs(config.get()));
        Supplier<KafkaApis> apis = once(() -> object(KafkaApis.class, (name, arguments) -> switch (name) {
            case "isConsumerGroupProtocolEnabled" -> cluster.supportedGroupProtocols().contains(GroupProtocol.CONSUMER);
            case "brokerId" -> node.id;
            default -> UNKNOWN;
        }));
        Supplier<ReplicaManager> replicas = once(() -> object(ReplicaManager.class, (name, arguments) -> switch (name) {
            case "logManager" -> logs.get();
            case "onlinePartition" -> hasFolder(config.get(), (TopicPartition) arguments[0])
                ? Option.apply(partition(cluster, node, (TopicPartition) arguments[0])) : Option.empty();
            default -> UNKNOWN;
        }));
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
            case "groupCoordinator" -> groups.get();
            case "dataPlaneRequestProcessor" -> apis.get();
            case "logManager" -> logs.get();
            case "replicaManager" -> replicas.get();
            default -> UNKNOWN;
        });
    }

    static ControllerServer controller(Cluster cluster, Node node) {
        Supplier<KafkaConfig> config = once(() -> Cluster.parsed(node));
        Supplier<SocketServer> sockets = once(() -> sockets(node));
        Supplier<SharedServer> shared = once(Answers::shared);
        Supplier<Controller> controller = once(() -> object(Controller.class, (name, arguments) ->
            name.equals("findAllTopicIds")
                ? CompletableFuture.completedFuture(Ask.topicIds(cluster.brokerBoundPorts().get(0))) : UNKNOWN));
        Supplier<KafkaRaftManager<?>> raft = once(() -> {
            RaftLog log = object(RaftLog.class, (name, arguments) -> name.equals("endOffset") ? new LogOffsetMetadata(0) : UNKNOWN);
            return object(KafkaRaftManager.class, (name, arguments) -> name.equals("raftLog") ? log : UNKNOWN);
        });
        return object(ControllerServer.class, (name, arguments) -> switch (name) {
            case "config" -> config.get();
            case "clusterId" -> cluster.clusterId();
            case "socketServer" -> sockets.get();
            case "sharedServer" -> shared.get();
            case "raftManager" -> raft.get();
            case "controller" -> controller.get();
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

    private static SocketServer sockets(Node node) {
        return object(SocketServer.class, (name, arguments) ->
            name.equals("boundPort") ? node.port(((ListenerName) arguments[0]).value()) : UNKNOWN);
    }

    /** Tells that everything is applied, after the pause in which it will be. */
    private static SharedServer shared() {
        MetadataLoader loader = object(MetadataLoader.class, (name, arguments) -> {
            if (!name.equals("lastAppliedOffset"))
                return UNKNOWN;
            Thread.sleep(100);
            return Long.MAX_VALUE;
        });
        return object(SharedServer.class, (name, arguments) -> name.equals("loader") ? loader : UNKNOWN);
    }

    private static GroupCoordinator groups(KafkaConfig config) {
        Properties topic = new Properties();
        topic.put("cleanup.policy", "compact");
        topic.put("compression.type", "producer");
        topic.put("segment.bytes", String.valueOf(config.getInt("offsets.topic.segment.bytes")));
        return object(GroupCoordinator.class, (name, arguments) -> name.equals("groupMetadataTopicConfigs") ? topic : UNKNOWN);
    }

    private static Partition partition(Cluster cluster, Node node, TopicPartition id) {
        return object(Partition.class, (name, arguments) -> {
            if (name.equals("topicPartition"))
                return id;
            if (!Set.of("isLeader", "getLeaderEpoch", "leaderIdIfLocal", "leaderLogIfLocal").contains(name))
                return UNKNOWN;
            LeaderAndIsr state = Ask.leader(cluster.clientPort(node), id.topic(), id.partition())
                .orElse(new LeaderAndIsr(-1, List.of()));
            boolean leads = state.leader() == node.id;
            if (name.equals("isLeader"))
                return leads;
            if (name.equals("getLeaderEpoch"))
                return state.leaderEpoch();
            if (!leads)
                return Option.empty();
            return Option.apply(name.equals("leaderIdIfLocal") ? (Object) node.id : object(UnifiedLog.class,
                (asked, none) -> asked.equals("latestEpoch") ? Optional.of(state.leaderEpoch()) : UNKNOWN));
        });
    }

    private static LogManager logs(KafkaConfig config) {
        return object(LogManager.class, (name, arguments) -> switch (name) {
            case "getLog" -> hasFolder(config, (TopicPartition) arguments[0])
                ? Option.apply(object(UnifiedLog.class, (asked, none) -> UNKNOWN)) : Option.empty();
            case "getLog$default$2" -> false;
            case "liveLogDirs" -> CollectionConverters.asScala(config.logDirs().stream().map(File::new).toList()).toSeq();
            default -> UNKNOWN;
        });
    }

    private static boolean hasFolder(KafkaConfig config, TopicPartition partition) {
        return config.logDirs().stream().anyMatch(directory -> new File(directory, partition.toString()).isDirectory());
    }

    private static KRaftMetadataCache metadata(Cluster cluster, Node node) {
        return object(KRaftMetadataCache.class, (name, arguments) -> {
            int port = cluster.clientPort(node);
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
                case "metadataVersion" -> cluster.config().metadataVersion();
                default -> UNKNOWN;
            };
        });
    }

    private static Map<Uuid, String> turned(Map<String, Uuid> ids) {
        Map<Uuid, String> names = new HashMap<>();
        ids.forEach((name, id) -> names.put(id, name));
        return names;
    }
}
