import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Client driver: Kafka's own Java client (producer, consumer, admin). */
public final class JavaDriver {
    private static final long LIMIT_S = 30;
    private static final ObjectMapper JSON = new ObjectMapper();

    private final String bootstrap;
    private final Admin admin;
    private final Transactions transactions;

    private JavaDriver(String bootstrap) {
        this.bootstrap = bootstrap;
        this.admin = Admin.create(Map.of("bootstrap.servers", bootstrap, "default.api.timeout.ms", (int) LIMIT_S * 1000));
        this.transactions = new Transactions(bootstrap, admin);
    }

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        JavaDriver driver = new JavaDriver(args[0]);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                answer.set("ok", JSON.valueToTree(driver.carryOut(JSON.readTree(line))));
            } catch (Exception e) {
                Throwable cause = e instanceof ExecutionException ? e.getCause() : e;
                answer.put("error", cause instanceof OffsetOutOfRangeException ? "OFFSET_OUT_OF_RANGE" : Errors.forException(cause).name());
                answer.put("text", String.valueOf(cause));
                e.printStackTrace();
            }
            answers.println(JSON.writeValueAsString(answer));
            answers.flush();
        }
        System.exit(0);
    }

    private Object carryOut(JsonNode r) throws Exception {
        String topic = r.path("topic").asText();
        int partition = r.path("partition").asInt();
        if (Transactions.CAN.contains(r.get("op").asText())) {
            return transactions.carryOut(r);
        }
        switch (r.get("op").asText()) {
            case "hello":
                List<String> can = new ArrayList<>(List.of("create_topic",
                    "create_partitions", "delete_topic", "list_topics", "describe_topic", "alter_config", "describe_config",
                    "describe_cluster", "produce", "fetch", "list_offset", "delete_records", "log_dirs", "directories", "read_as_group", "committed",
                    "describe_group", "list_groups", "delete_group", "begin_by_duration"));
                can.addAll(Transactions.CAN);
                return Map.of("version", "kafka-clients " + version(), "can", can, "features", Map.of());
            case "create_topic":
                NewTopic created = new NewTopic(topic, r.get("partitions").asInt(), (short) r.path("replication").asInt(1));
                await(admin.createTopics(List.of(created.configs(strings(r.path("configs"))))).all());
                return settle(() -> partitions(topic).size() == created.numPartitions());
            case "create_partitions":
                int total = r.get("total").asInt();
                await(admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(total))).all());
                return settle(() -> partitions(topic).size() == total);
            case "delete_topic":
                await(admin.deleteTopics(List.of(topic)).all());
                return settle(() -> !await(admin.listTopics().names()).contains(topic));
            case "list_topics":
                return new TreeSet<>(await(admin.listTopics().names()));
            case "describe_topic":
                return partitions(topic).stream().map(p -> Map.of("id", p.partition(), "leader", p.leader().id(),
                    "replicas", ids(p.replicas()), "isr", ids(p.isr()))).toList();
            case "alter_config":
                return alterConfig(topic, r);
            case "describe_config":
                Map<String, String> values = new HashMap<>();
                ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
                await(admin.describeConfigs(List.of(resource)).all()).get(resource).entries()
                    .forEach(entry -> values.put(entry.name(), entry.value()));
                return values;
            case "describe_cluster":
                var cluster = admin.describeCluster();
                return Map.of("id", await(cluster.clusterId()), "controller", await(cluster.controller()).id(),
                    "nodes", ids(await(cluster.nodes())));
            case "produce":
                return produce(topic, r);
            case "fetch":
                return fetch(new TopicPartition(topic, partition), r);
            case "list_offset":
                var at = new TopicPartition(topic, partition);
                String spec = r.get("spec").asText();
                var options = new ListOffsetsOptions(spec.equals("latest_committed") ? IsolationLevel.READ_COMMITTED : IsolationLevel.READ_UNCOMMITTED);
                return await(admin.listOffsets(Map.of(at, spec(spec)), options).partitionResult(at)).offset();
            case "delete_records":
                var cut = new TopicPartition(topic, partition);
                var before = RecordsToDelete.beforeOffset(r.get("before").asLong());
                return await(admin.deleteRecords(Map.of(cut, before)).lowWatermarks().get(cut)).lowWatermark();
            case "read_as_group":
                return readAsGroup(topic, r);
            case "committed":
                Map<String, Long> offsets = new HashMap<>();
                await(admin.listConsumerGroupOffsets(r.get("group").asText()).partitionsToOffsetAndMetadata()).forEach((p, o) -> {
                    if (p.topic().equals(topic) && o != null) {
                        offsets.put(String.valueOf(p.partition()), o.offset());
                    }
                });
                return offsets;
            case "describe_group":
                String named = r.get("group").asText();
                ConsumerGroupDescription group = await(admin.describeConsumerGroups(List.of(named)).describedGroups().get(named));
                return Map.of("state", group.groupState().name(), "members", group.members().size());
            case "list_groups":
                return new TreeSet<>(await(admin.listGroups().all()).stream().map(GroupListing::groupId).toList());
            case "delete_group":
                await(admin.deleteConsumerGroups(List.of(r.get("group").asText())).all());
                return null;
            case "log_dirs":
                Map<String, Long> sizes = new HashMap<>();
                await(admin.describeLogDirs(List.of(1)).allDescriptions()).get(1).values().forEach(directory ->
                    directory.replicaInfos().forEach((name, replica) -> sizes.put(name.toString(), replica.size())));
                return sizes;
            case "directories":
                return directories(r);
            default:
                throw new IllegalArgumentException("unknown operation " + r.get("op"));
        }
    }

    /** The log directories of brokers: by broker and path the error, if there is one, and by partition whether it is a copy that is on its way there. */
    private Object directories(JsonNode r) throws Exception {
        List<Integer> brokers = new ArrayList<>();
        r.get("brokers").forEach(broker -> brokers.add(broker.asInt()));
        Map<Integer, Object> told = new HashMap<>();
        await(admin.describeLogDirs(brokers).allDescriptions()).forEach((broker, directories) -> {
            Map<String, Object> byPath = new HashMap<>();
            directories.forEach((path, directory) -> {
                Map<String, Boolean> replicas = new HashMap<>();
                directory.replicaInfos().forEach((name, replica) -> replicas.put(name.toString(), replica.isFuture()));
                String error = directory.error() == null ? "" : Errors.forException(directory.error()).name();
                byPath.put(path, Map.of("error", error, "replicas", replicas));
            });
            told.put(broker, byPath);
        });
        return told;
    }

    /** Reads with several members at a time, which commit what they have read when they give it up. */
    private Object readAsGroup(String topic, JsonNode r) throws Exception {
        List<JsonNode> records = Collections.synchronizedList(new ArrayList<>());
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "group.id", r.get("group").asText(),
            "group.protocol", r.path("protocol").asText("classic"), "auto.offset.reset", r.path("reset").asText("earliest"),
            "enable.auto.commit", false, "max.poll.records", 10);
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(LIMIT_S);
        int count = r.get("count").asInt();
        ExecutorService threads = Executors.newCachedThreadPool();
        List<Future<?>> members = new ArrayList<>();
        for (int i = 0; i < r.path("members").asInt(1); i++) {
            members.add(threads.submit(() -> {
                try (KafkaConsumer<byte[], byte[]> consumer =
                         new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
                    consumer.subscribe(List.of(topic), new ConsumerRebalanceListener() {
                        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                            consumer.commitSync();
                        }

                        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                        }
                    });
                    while (records.size() < count && System.nanoTime() < deadline) {
                        consumer.poll(Duration.ofMillis(100)).forEach(record -> {
                            ObjectNode node = (ObjectNode) describe(record);
                            node.put("partition", record.partition());
                            records.add(node);
                        });
                    }
                    consumer.commitSync();
                }
                return null;
            }));
        }
        threads.shutdown();
        for (Future<?> member : members) {
            member.get();
        }
        return records;
    }

    private static String version() throws Exception {
        var properties = new java.util.Properties();
        properties.load(Admin.class.getResourceAsStream("/kafka/kafka-version.properties"));
        return properties.getProperty("version");
    }

    private static <T> T await(Future<T> future) throws Exception {
        return future.get(LIMIT_S, TimeUnit.SECONDS);
    }

    private interface Check {
        boolean reached() throws Exception;
    }

    /** Waits until the brokers tell what was changed; Kafka answers before they all know. */
    private static Object settle(Check check) throws Exception {
        for (int i = 0; i < 200; i++) {
            try {
                if (check.reached()) {
                    return null;
                }
            } catch (ExecutionException e) {
                // Not known yet.
            }
            Thread.sleep(50);
        }
        return null;
    }

    private List<TopicPartitionInfo> partitions(String topic) throws Exception {
        return await(admin.describeTopics(List.of(topic)).allTopicNames()).get(topic).partitions();
    }

    private static List<Integer> ids(Collection<Node> nodes) {
        return nodes.stream().map(Node::id).toList();
    }

    private static Map<String, String> strings(JsonNode node) {
        Map<String, String> map = new HashMap<>();
        node.fields().forEachRemaining(field -> map.put(field.getKey(), field.getValue().asText()));
        return map;
    }

    private Object alterConfig(String topic, JsonNode r) throws Exception {
        Collection<AlterConfigOp> ops = new ArrayList<>();
        strings(r.path("set")).forEach((name, value) ->
            ops.add(new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET)));
        r.path("delete").forEach(name ->
            ops.add(new AlterConfigOp(new ConfigEntry(name.asText(), null), AlterConfigOp.OpType.DELETE)));
        await(admin.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.TOPIC, topic), ops)).all());
        return null;
    }

    private static OffsetSpec spec(String text) {
        return switch (text) {
            case "earliest" -> OffsetSpec.earliest();
            case "latest", "latest_committed" -> OffsetSpec.latest();
            case "max_timestamp" -> OffsetSpec.maxTimestamp();
            default -> OffsetSpec.forTimestamp(Long.parseLong(text));
        };
    }

    private static byte[] bytes(JsonNode node) {
        return node == null || node.isNull() ? null : Base64.getDecoder().decode(node.asText());
    }

    private static String text(byte[] bytes) {
        return bytes == null ? null : Base64.getEncoder().encodeToString(bytes);
    }

    private Object produce(String topic, JsonNode r) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("compression.type", r.path("compression").asText("none"));
        settings.put("acks", r.path("acks").asText("all"));
        settings.put("enable.idempotence", r.path("idempotent").asBoolean(true));
        settings.put("max.request.size", 20_000_000);
        settings.put("linger.ms", 5);
        settings.put("max.block.ms", LIMIT_S * 1000);
        settings.put("delivery.timeout.ms", (int) LIMIT_S * 1000);
        settings.put("request.timeout.ms", (int) LIMIT_S * 1000 - 1000);
        settings.putAll(strings(r.path("settings")));
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        List<Long> offsets = new ArrayList<>();
        try (var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (JsonNode record : r.get("records")) {
                List<Header> headers = new ArrayList<>();
                record.get("headers").forEach(h -> headers.add(new RecordHeader(h.get(0).asText(), bytes(h.get(1)))));
                JsonNode stamp = record.get("timestamp");
                Long timestamp = stamp == null || stamp.isNull() ? null : stamp.asLong();
                sent.add(producer.send(new ProducerRecord<>(topic, record.get("partition").asInt(), timestamp,
                    bytes(record.get("key")), bytes(record.get("value")), headers)));
            }
            for (Future<RecordMetadata> one : sent) {
                offsets.add(await(one).offset());
            }
        }
        return offsets;
    }

    private Object fetch(TopicPartition from, JsonNode r) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("auto.offset.reset", "none");
        settings.put("enable.auto.commit", false);
        settings.put("max.partition.fetch.bytes", 20_000_000);
        settings.putAll(strings(r.path("settings")));
        ArrayNode records = JSON.createArrayNode();
        try (var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(List.of(from));
            consumer.seek(from, r.get("offset").asLong());
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(LIMIT_S);
            int count = r.get("count").asInt();
            while (records.size() < count && System.nanoTime() < deadline) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    if (records.size() < count) {
                        records.add(describe(record));
                    }
                }
            }
        }
        return records;
    }

    private static JsonNode describe(ConsumerRecord<byte[], byte[]> record) {
        ObjectNode node = JSON.createObjectNode();
        node.put("offset", record.offset());
        node.put("timestamp", record.timestamp());
        node.put("timestamp_type", switch (record.timestampType()) {
            case CREATE_TIME -> "create";
            case LOG_APPEND_TIME -> "append";
            default -> "none";
        });
        node.put("key", text(record.key()));
        node.put("value", text(record.value()));
        ArrayNode headers = node.putArray("headers");
        record.headers().forEach(h -> headers.addArray().add(h.key()).add(text(h.value())));
        return node;
    }
}
