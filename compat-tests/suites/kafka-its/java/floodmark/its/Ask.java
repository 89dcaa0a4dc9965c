package floodmark.its;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.requests.MetadataRequest;
import org.apache.kafka.common.requests.MetadataResponse;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.metadata.LeaderAndIsr;
import org.apache.kafka.metadata.LeaderRecoveryState;
import org.apache.kafka.server.IntegrationTestUtils;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.Socket;
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

    private static MetadataResponse send(int port, MetadataRequest.Builder builder) throws IOException {
        MetadataRequest request = builder.build();
        try (Socket socket = new Socket()) {
            socket.connect(new InetSocketAddress("localhost", port), LIMIT_MS);
            socket.setSoTimeout(LIMIT_MS);
            RequestHeader header = IntegrationTestUtils.nextRequestHeader(ApiKeys.METADATA, request.version());
            IntegrationTestUtils.sendRequest(socket, Utils.toArray(request.serializeWithHeader(header)));
            return IntegrationTestUtils.receive(socket, ApiKeys.METADATA, request.version());
        }
    }
}
