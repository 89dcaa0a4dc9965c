package floodmark.its;

import kafka.cluster.Partition;
import kafka.log.LogManager;
import kafka.server.KafkaConfig;
import kafka.server.ReplicaManager;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.NotLeaderOrFollowerException;
import org.apache.kafka.metadata.LeaderAndIsr;
import org.apache.kafka.server.HostedPartition;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.UnifiedLog;

import java.io.File;
import java.io.IOException;
import java.util.HashSet;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.function.Supplier;

import scala.Option;
import scala.jdk.javaapi.CollectionConverters;
import scala.jdk.javaapi.OptionConverters;

/**
 * What can be told of one broker's logs and partitions: where its folders are, by looking; their ends, by asking this broker as one
 * who looks at a replica (ListOffsets, replica id -2); settings and leaders, as this broker knows them.
 */
final class Logs {
    /** Between the moments in which a moved replica's old folder goes and the new one gets its name, there is none. */
    private static final long RENAMED_MS = 500;
    private static final int LATEST = -1;
    private static final int EARLIEST = -2;

    private final Cluster cluster;
    private final Node node;
    private final KafkaConfig config;

    Logs(Cluster cluster, Node node, KafkaConfig config) {
        this.cluster = cluster;
        this.node = node;
        this.config = config;
    }

    LogManager manager(Supplier<KafkaConfig> current) {
        return Answers.object(LogManager.class, (name, arguments) -> switch (name) {
            case "getLog" -> OptionConverters.toScala(log((TopicPartition) arguments[0], (boolean) arguments[1]));
            case "getLog$default$2" -> false;
            case "liveLogDirs" -> CollectionConverters.asScala(config.logDirs().stream().map(File::new).toList()).toSeq();
            case "isLogDirOnline" -> Ask.onlineDirectories(port()).contains((String) arguments[0]);
            case "initialDefaultConfig" -> new LogConfig(config.extractLogConfigMap());
            case "currentDefaultConfig" -> new LogConfig(current.get().extractLogConfigMap());
            default -> Answers.UNKNOWN;
        });
    }

    ReplicaManager replicas(Supplier<LogManager> manager) {
        return Answers.object(ReplicaManager.class, (name, arguments) -> switch (name) {
            case "logManager" -> manager.get();
            case "localLog", "getLog" -> OptionConverters.toScala(log((TopicPartition) arguments[0], false));
            case "localLogOrException" -> log((TopicPartition) arguments[0], false)
                .orElseThrow(() -> new NotLeaderOrFollowerException("no folder of " + arguments[0]));
            case "onlinePartition" -> OptionConverters.toScala(hosted((TopicPartition) arguments[0]));
            case "getPartition" -> hosted((TopicPartition) arguments[0])
                .<HostedPartition<Partition>>map(HostedPartition.Online::new).orElseGet(HostedPartition.None::new);
            default -> Answers.UNKNOWN;
        });
    }

    private int port() {
        return cluster.clientPort(node);
    }

    private Optional<Partition> hosted(TopicPartition id) {
        // A broker that does not run hosts nothing, though its folders are there.
        return node.alive() ? folder(id, false).map(found -> partition(id)) : Optional.empty();
    }

    private Partition partition(TopicPartition id) {
        return Answers.object(Partition.class, (name, arguments) -> {
            if (name.equals("topicPartition"))
                return id;
            if (name.equals("topicId"))
                return Option.apply(Ask.topicIds(port()).get(id.topic()));
            if (name.equals("log"))
                return OptionConverters.toScala(log(id, false));
            if (name.equals("futureLog"))
                return OptionConverters.toScala(log(id, true));
            if (!Set.of("isLeader", "getLeaderEpoch", "leaderIdIfLocal", "leaderLogIfLocal", "leaderReplicaIdOpt", "inSyncReplicaIds")
                    .contains(name))
                return Answers.UNKNOWN;
            LeaderAndIsr state = Ask.leader(port(), id.topic(), id.partition()).orElse(new LeaderAndIsr(-1, List.of()));
            boolean leads = state.leader() == node.id;
            return switch (name) {
                case "isLeader" -> leads;
                case "getLeaderEpoch" -> state.leaderEpoch();
                case "leaderReplicaIdOpt" -> state.leader() < 0 ? Option.empty() : Option.apply((Object) state.leader());
                case "inSyncReplicaIds" -> CollectionConverters.asScala(new HashSet<Object>(state.isr())).toSet();
                case "leaderIdIfLocal" -> leads ? Option.apply((Object) node.id) : Option.empty();
                default -> leads ? OptionConverters.toScala(log(id, false)) : Option.empty();
            };
        });
    }

    private Optional<UnifiedLog> log(TopicPartition id, boolean future) {
        return folder(id, future).map(found -> Answers.object(UnifiedLog.class, (name, arguments) -> switch (name) {
            case "topicPartition" -> id;
            case "topicId" -> Optional.ofNullable(Ask.topicIds(port()).get(id.topic()));
            case "dir" -> found;
            case "parentDir" -> found.getParent();
            case "parentDirFile" -> found.getParentFile();
            case "name" -> found.getName();
            case "numberOfSegments" -> files(found, ".log").length;
            case "config" -> future ? Answers.UNKNOWN : Ask.logConfig(port(), id.topic());
            case "logStartOffset" -> future ? Answers.UNKNOWN : Ask.offset(port(), id, EARLIEST);
            case "logEndOffset" -> future ? Answers.UNKNOWN : Ask.offset(port(), id, LATEST);
            case "highWatermark" -> future ? Answers.UNKNOWN : Ask.highWatermark(port(), id);
            case "latestEpoch" -> latestEpoch(id);
            case "producerStateManager" -> Answers.object(ProducerStateManager.class, (asked, none) ->
                asked.equals("activeProducers") ? Ask.producers(port(), id) : Answers.UNKNOWN);
            default -> Answers.UNKNOWN;
        }));
    }

    /** A leader's log is of its epoch, or about to be. */
    private Object latestEpoch(TopicPartition id) throws IOException {
        return Ask.leader(port(), id.topic(), id.partition()).filter(state -> state.leader() == node.id)
            .<Object>map(state -> Optional.of(state.leaderEpoch())).orElse(Answers.UNKNOWN);
    }

    private Optional<File> folder(TopicPartition id, boolean future) {
        long end = System.nanoTime() + RENAMED_MS * 1_000_000;
        while (true) {
            Optional<File> moved = find(name -> name.startsWith(id + ".") && name.endsWith("-future"));
            Optional<File> current = find(name -> name.equals(id.toString()));
            if (future || current.isPresent() || moved.isEmpty() || System.nanoTime() > end)
                return future ? moved : current;
        }
    }

    private Optional<File> find(java.util.function.Predicate<String> is) {
        return config.logDirs().stream().flatMap(directory -> List.of(files(new File(directory), "")).stream())
            .filter(file -> is.test(file.getName())).findFirst();
    }

    private static File[] files(File directory, String ending) {
        File[] found = directory.listFiles((parent, name) -> name.endsWith(ending));
        return found == null ? new File[0] : found;
    }
}
