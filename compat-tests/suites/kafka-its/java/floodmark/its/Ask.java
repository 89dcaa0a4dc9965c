package floodmark.its;

import org.apache.kafka.clients.ApiVersions;
import org.apache.kafka.clients.ClientUtils;
import org.apache.kafka.clients.ManualMetadataUpdater;
import org.apache.kafka.clients.MetadataRecoveryStrategy;
import org.apache.kafka.clients.NetworkClient;
import org.apache.kafka.clients.NetworkClientUtils;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.network.Selector;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.requests.MetadataRequest;
import org.apache.kafka.common.requests.MetadataResponse;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.metadata.LeaderAndIsr;
import org.apache.kafka.metadata.LeaderRecoveryState;

import java.io.IOException;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/** What one broker says in its Metadata answer. An Admin client would not do: it chooses the broker that it asks. */
final class Ask {
    private static final int LIMIT_MS = 5_000;

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

    private static MetadataResponse send(int port, MetadataRequest.Builder request) throws IOException {
        AdminClientConfig config = new AdminClientConfig(Map.of(AdminClientConfig.BOOTSTRAP_SERVERS_CONFIG, "localhost:" + port));
        LogContext log = new LogContext();
        try (Metrics metrics = new Metrics();
             Selector selector = new Selector(60_000, metrics, Time.SYSTEM, "its",
                 ClientUtils.createChannelBuilder(config, Time.SYSTEM, log), log);
             NetworkClient client = new NetworkClient(selector, new ManualMetadataUpdater(), "its", 1, 50, 50, 65_536, 65_536,
                 LIMIT_MS, LIMIT_MS, LIMIT_MS, Time.SYSTEM, true, new ApiVersions(), log, MetadataRecoveryStrategy.NONE)) {
            if (!NetworkClientUtils.awaitReady(client, new org.apache.kafka.common.Node(0, "localhost", port), Time.SYSTEM, LIMIT_MS))
                throw new IOException("nobody answers at port " + port);
            return (MetadataResponse) NetworkClientUtils.sendAndReceive(client,
                client.newClientRequest("0", request, Time.SYSTEM.milliseconds(), true, LIMIT_MS, null), Time.SYSTEM).responseBody();
        }
    }
}
