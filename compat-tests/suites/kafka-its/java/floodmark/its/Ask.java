package floodmark.its;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.internals.Topic;
import org.apache.kafka.common.message.DescribeClusterRequestData;
import org.apache.kafka.common.message.DescribeConfigsRequestData;
import org.apache.kafka.common.message.DescribeConfigsResponseData.DescribeConfigsResourceResult;
import org.apache.kafka.common.message.DescribeLogDirsRequestData;
import org.apache.kafka.common.message.DescribeLogDirsResponseData;
import org.apache.kafka.common.message.DescribeProducersRequestData;
import org.apache.kafka.common.message.DescribeProducersRequestData.TopicRequest;
import org.apache.kafka.common.message.ListOffsetsRequestData.ListOffsetsPartition;
import org.apache.kafka.common.message.ListOffsetsRequestData.ListOffsetsTopic;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractResponse;
import org.apache.kafka.common.requests.ApiVersionsRequest;
import org.apache.kafka.common.requests.ApiVersionsResponse;
import org.apache.kafka.common.requests.DescribeClusterRequest;
import org.apache.kafka.common.requests.DescribeClusterResponse;
import org.apache.kafka.common.requests.DescribeConfigsRequest;
import org.apache.kafka.common.requests.DescribeConfigsResponse;
import org.apache.kafka.common.requests.DescribeLogDirsRequest;
import org.apache.kafka.common.requests.DescribeLogDirsResponse;
import org.apache.kafka.common.requests.DescribeProducersRequest;
import org.apache.kafka.common.requests.DescribeProducersResponse;
import org.apache.kafka.common.requests.DescribeQuorumRequest;
import org.apache.kafka.common.requests.DescribeQuorumResponse;
import org.apache.kafka.common.requests.FetchRequest;
import org.apache.kafka.common.requests.FetchResponse;
import org.apache.kafka.common.requests.ListOffsetsRequest;
import org.apache.kafka.common.requests.ListOffsetsResponse;
import org.apache.kafka.common.requests.MetadataRequest;
import org.apache.kafka.common.requests.MetadataResponse;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.image.FeaturesImage;
import org.apache.kafka.metadata.BrokerRegistration;
import org.apache.kafka.metadata.LeaderAndIsr;
import org.apache.kafka.metadata.LeaderRecoveryState;
import org.apache.kafka.raft.LeaderAndEpoch;
import org.apache.kafka.server.IntegrationTestUtils;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.Properties;
import java.util.Set;
import java.util.stream.Collectors;

/** What one node says when it is asked. An Admin client would not do: it chooses the broker that it asks. */
final class Ask {
    private static final int LIMIT_MS = 5_000;
    /** The newest version of Fetch that names topics. */
    private static final short BY_NAME = 12;
    private static final Set<Byte> DYNAMIC = Set.of(DescribeConfigsResponse.ConfigSource.DYNAMIC_BROKER_CONFIG.id(),
        DescribeConfigsResponse.ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG.id());

    private Ask() { }

    static MetadataResponse all(int port) throws IOException {
        return send(port, MetadataRequest.Builder.allTopics());
    }

    static MetadataResponse brokers(int port) throws IOException {
        return send(port, new MetadataRequest.Builder(List.of(), false));
    }

    static Map<String, Uuid> topicIds(int port) throws IOException {
        Map<String, Uuid> ids = new HashMap<>();
        all(port).data().topics().forEach(topic -> ids.put(topic.name(), topic.topicId()));
        return ids;
    }

    static Optional<Integer> partitions(int port, String name) throws IOException {
        return topic(port, name).map(topic -> topic.partitionMetadata().size());
    }

    static Optional<LeaderAndIsr> leader(int port, String name, int partition) throws IOException {
        return topic(port, name).stream().flatMap(topic -> topic.partitionMetadata().stream())
            .filter(p -> p.partition() == partition)
            .map(p -> new LeaderAndIsr(p.leaderId.orElse(-1), p.leaderEpoch.orElse(-1), p.inSyncReplicaIds,
                LeaderRecoveryState.RECOVERED, 0))
            .findFirst();
    }

    private static Optional<MetadataResponse.TopicMetadata> topic(int port, String name) throws IOException {
        return send(port, new MetadataRequest.Builder(List.of(name), false)).topicMetadata().stream()
            .filter(topic -> name.equals(topic.topic()) && topic.error() == Errors.NONE).findFirst();
    }

    /** The replicas of a partition that live, with their addresses. */
    static Map<Integer, org.apache.kafka.common.Node> replicas(int port, TopicPartition id) throws IOException {
        Map<Integer, org.apache.kafka.common.Node> living = brokers(port).brokersById();
        Map<Integer, org.apache.kafka.common.Node> found = new HashMap<>();
        topic(port, id.topic()).stream().flatMap(topic -> topic.partitionMetadata().stream())
            .filter(p -> p.partition() == id.partition()).flatMap(p -> p.replicaIds.stream()).filter(living::containsKey)
            .forEach(replica -> found.put(replica, living.get(replica)));
        return found;
    }

    static MetadataResponse brokersNow(int port) {
        try {
            return brokers(port);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /** An offset of this broker's replica, whether or not it leads: the end of its log (-1), or the start (-2). */
    static long offset(int port, TopicPartition id, long which) throws IOException {
        ListOffsetsTopic topic = new ListOffsetsTopic().setName(id.topic()).setPartitions(List.of(
            new ListOffsetsPartition().setPartitionIndex(id.partition()).setTimestamp(which)));
        ListOffsetsResponse response = send(port, ListOffsetsRequest.Builder
            .forReplica((short) 1, ListOffsetsRequest.DEBUGGING_REPLICA_ID).setTargetTimes(List.of(topic)).build((short) 1));
        var answer = response.topics().get(0).partitions().get(0);
        Errors.forCode(answer.errorCode()).maybeThrow();
        return answer.offset();
    }

    /** As a consumer hears it that reads from this replica. */
    static long highWatermark(int port, TopicPartition id) throws IOException {
        var partition = new FetchRequest.PartitionData(Uuid.ZERO_UUID, offset(port, id, -2), 0, 1, Optional.empty());
        FetchResponse response = send(port, FetchRequest.Builder.forConsumer(BY_NAME, 0, 0, Map.of(id, partition)).build(BY_NAME));
        var answer = response.data().responses().get(0).partitions().get(0);
        Errors.forCode(answer.errorCode()).maybeThrow();
        return answer.highWatermark();
    }

    static Set<String> onlineDirectories(int port) throws IOException {
        DescribeLogDirsResponse response = send(port, new DescribeLogDirsRequest.Builder(
            new DescribeLogDirsRequestData().setTopics(new DescribeLogDirsRequestData.DescribableLogDirTopicCollection())).build());
        return response.data().results().stream().filter(directory -> directory.errorCode() == Errors.NONE.code())
            .map(DescribeLogDirsResponseData.DescribeLogDirsResult::logDir).collect(Collectors.toSet());
    }

    /** The producers whose state this broker, which leads, has in a log. */
    static Map<Long, ProducerStateEntry> producers(int port, TopicPartition id) throws IOException {
        DescribeProducersResponse response = send(port, new DescribeProducersRequest.Builder(new DescribeProducersRequestData().setTopics(
            List.of(new TopicRequest().setName(id.topic()).setPartitionIndexes(List.of(id.partition()))))).build());
        var answer = response.data().topics().get(0).partitions().get(0);
        Errors.forCode(answer.errorCode()).maybeThrow();
        Map<Long, ProducerStateEntry> found = new HashMap<>();
        answer.activeProducers().forEach(producer -> found.put(producer.producerId(), new ProducerStateEntry(producer.producerId(),
            (short) producer.producerEpoch(), producer.coordinatorEpoch(), producer.lastTimestamp(),
            producer.currentTxnStartOffset() < 0 ? OptionalLong.empty() : OptionalLong.of(producer.currentTxnStartOffset()))));
        return found;
    }

    /** A topic's configuration, all of it, in the form in which a log has it. */
    static LogConfig logConfig(int port, String topic) throws IOException {
        Map<String, String> values = new HashMap<>();
        for (DescribeConfigsResourceResult entry : configs(port, ConfigResource.Type.TOPIC, topic))
            if (LogConfig.configNames().contains(entry.name()) && entry.value() != null)
                values.put(entry.name(), entry.value());
        return new LogConfig(values);
    }

    /** What is set for the topic itself. */
    static Properties ownTopicConfig(int port, String topic) throws IOException {
        Properties values = new Properties();
        for (DescribeConfigsResourceResult entry : configs(port, ConfigResource.Type.TOPIC, topic))
            if (entry.configSource() == DescribeConfigsResponse.ConfigSource.TOPIC_CONFIG.id() && entry.value() != null)
                values.put(entry.name(), entry.value());
        return values;
    }

    /** What has been set since the broker's start, for it or for all. */
    static Map<String, String> dynamicConfig(int port, int broker) throws IOException {
        Map<String, String> values = new HashMap<>();
        for (DescribeConfigsResourceResult entry : configs(port, ConfigResource.Type.BROKER, "" + broker))
            if (DYNAMIC.contains(entry.configSource()) && entry.value() != null)
                values.put(entry.name(), entry.value());
        return values;
    }

    private static List<DescribeConfigsResourceResult> configs(int port, ConfigResource.Type type, String name) throws IOException {
        DescribeConfigsResponse response = send(port, new DescribeConfigsRequest.Builder(new DescribeConfigsRequestData().setResources(
            List.of(new DescribeConfigsRequestData.DescribeConfigsResource().setResourceType(type.id()).setResourceName(name)
                .setConfigurationKeys(null)))).build());
        var answer = response.data().results().get(0);
        Errors.forCode(answer.errorCode()).maybeThrow();
        return answer.configs();
    }

    /** The brokers that are registered; of each, whether it is fenced. */
    static Map<Integer, BrokerRegistration> registered(int port) throws IOException {
        DescribeClusterResponse response = send(port, new DescribeClusterRequest.Builder(
            new DescribeClusterRequestData().setIncludeFencedBrokers(true)).build());
        Map<Integer, BrokerRegistration> found = new HashMap<>();
        response.data().brokers().forEach(broker -> found.put(broker.brokerId(),
            new BrokerRegistration.Builder().setId(broker.brokerId()).setFenced(broker.isFenced()).build()));
        return found;
    }

    static FeaturesImage features(int port) throws IOException {
        ApiVersionsResponse response = send(port, new ApiVersionsRequest.Builder().build());
        Map<String, Short> levels = new HashMap<>();
        response.data().finalizedFeatures().forEach(feature -> levels.put(feature.name(), feature.maxVersionLevel()));
        Short version = levels.remove(MetadataVersion.FEATURE_NAME);
        return new FeaturesImage(levels, MetadataVersion.fromFeatureLevel(version));
    }

    /** Who leads the quorum of controllers, as the node at this port can find out. */
    static LeaderAndEpoch quorumLeader(int port) throws IOException {
        DescribeQuorumResponse response = send(port, new DescribeQuorumRequest.Builder(
            DescribeQuorumRequest.singletonRequest(Topic.CLUSTER_METADATA_TOPIC_PARTITION)).build());
        if (response.data().errorCode() != Errors.NONE.code())
            return LeaderAndEpoch.UNKNOWN;
        var partition = response.data().topics().get(0).partitions().get(0);
        return partition.leaderId() < 0 || partition.errorCode() != Errors.NONE.code() ? LeaderAndEpoch.UNKNOWN
            : new LeaderAndEpoch(OptionalInt.of(partition.leaderId()), partition.leaderEpoch());
    }

    private static MetadataResponse send(int port, MetadataRequest.Builder builder) throws IOException {
        return send(port, builder.build());
    }

    private static <T extends AbstractResponse> T send(int port, AbstractRequest request) throws IOException {
        try (Socket socket = new Socket()) {
            socket.connect(new InetSocketAddress("localhost", port), LIMIT_MS);
            socket.setSoTimeout(LIMIT_MS);
            RequestHeader header = IntegrationTestUtils.nextRequestHeader(request.apiKey(), request.version());
            IntegrationTestUtils.sendRequest(socket, Utils.toArray(request.serializeWithHeader(header)));
            return IntegrationTestUtils.receive(socket, request.apiKey(), request.version());
        }
    }
}
