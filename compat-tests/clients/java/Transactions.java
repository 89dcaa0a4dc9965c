import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** The operations of the Java driver that are about transactions. Producers stay open from one operation to the next. */
final class Transactions {
    static final List<String> CAN = List.of("txn_open", "txn_begin", "txn_send", "txn_end", "txn_close", "transform",
        "list_transactions", "describe_transaction", "describe_producers", "abort_transaction");
    private static final long LIMIT_S = 30;

    private final String bootstrap;
    private final Admin admin;
    private final Map<String, KafkaProducer<String, String>> producers = new HashMap<>();

    Transactions(String bootstrap, Admin admin) {
        this.bootstrap = bootstrap;
        this.admin = admin;
    }

    /** Throws the broker's error where the client has wrapped one. */
    Object carryOut(JsonNode r) throws Exception {
        try {
            return operation(r);
        } catch (Exception e) {
            for (Throwable cause = e; cause != null; cause = cause.getCause()) {
                if (cause instanceof ApiException known) {
                    e.printStackTrace();
                    throw known;
                }
            }
            throw e;
        }
    }

    private Object operation(JsonNode r) throws Exception {
        KafkaProducer<String, String> producer = producers.get(r.path("handle").asText());
        switch (r.get("op").asText()) {
            case "txn_open":
                producers.put(r.get("handle").asText(), producer(r.get("id").asText(), r.get("timeout_ms").asInt()));
                return null;
            case "txn_begin":
                producer.beginTransaction();
                return null;
            case "txn_send":
                List<Future<RecordMetadata>> sent = new ArrayList<>();
                r.get("values").forEach(value -> sent.add(producer.send(new ProducerRecord<>(r.get("topic").asText(), 0, null, value.asText()))));
                for (Future<RecordMetadata> one : sent) {
                    one.get(LIMIT_S, TimeUnit.SECONDS);
                }
                return null;
            case "txn_end":
                if (r.get("commit").asBoolean()) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                }
                return null;
            case "txn_close":
                producers.remove(r.get("handle").asText()).close(Duration.ofSeconds(5));
                return null;
            case "transform":
                return transform(r);
            case "list_transactions":
                Map<String, String> states = new HashMap<>();
                admin.listTransactions().all().get(LIMIT_S, TimeUnit.SECONDS)
                    .forEach(one -> states.put(one.transactionalId(), one.state().name()));
                return states;
            case "describe_transaction":
                String id = r.get("id").asText();
                var told = admin.describeTransactions(List.of(id)).description(id).get(LIMIT_S, TimeUnit.SECONDS);
                return Map.of("state", told.state().name(), "partitions", told.topicPartitions().stream().map(Object::toString).toList());
            case "describe_producers":
                List<Long> starts = new ArrayList<>();
                for (ProducerState state : active(partition(r))) {
                    var start = state.currentTransactionStartOffset();
                    starts.add(start.isPresent() ? (Long) start.getAsLong() : null);
                }
                return starts;
            case "abort_transaction":
                ProducerState open = active(partition(r)).stream()
                    .filter(state -> state.currentTransactionStartOffset().orElse(-1) == r.get("start").asLong()).findFirst().orElseThrow();
                admin.abortTransaction(new AbortTransactionSpec(partition(r), open.producerId(), (short) open.producerEpoch(),
                    open.coordinatorEpoch().orElse(0))).all().get(LIMIT_S, TimeUnit.SECONDS);
                return null;
            default:
                throw new IllegalArgumentException("unknown operation " + r.get("op"));
        }
    }

    private static TopicPartition partition(JsonNode r) {
        return new TopicPartition(r.get("topic").asText(), r.get("partition").asInt());
    }

    private List<ProducerState> active(TopicPartition partition) throws Exception {
        return admin.describeProducers(Set.of(partition)).partitionResult(partition).get(LIMIT_S, TimeUnit.SECONDS).activeProducers();
    }

    private KafkaProducer<String, String> producer(String id, int timeoutMs) {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "transactional.id", id,
            "transaction.timeout.ms", timeoutMs, "max.block.ms", LIMIT_S * 1000);
        var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        return producer;
    }

    /** Copies records with a mark from one topic to the other, a few in each transaction; every so many are aborted and done again. */
    private Object transform(JsonNode r) {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "group.id", r.get("group").asText(),
            "isolation.level", "read_committed", "auto.offset.reset", "earliest", "enable.auto.commit", false, "max.poll.records", 5);
        int copied = 0;
        int rounds = 0;
        int aborted = 0;
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(LIMIT_S);
        try (var producer = producer(r.get("id").asText(), 60_000);
             var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(r.get("source").asText()));
            while (copied < r.get("count").asInt() && System.nanoTime() < deadline) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
                if (records.isEmpty()) {
                    continue;
                }
                producer.beginTransaction();
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                for (ConsumerRecord<String, String> record : records) {
                    producer.send(new ProducerRecord<>(r.get("target").asText(), record.partition(), record.key(), record.value() + "!"));
                    offsets.put(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
                }
                producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                if (++rounds % r.get("abort_every").asInt() == 0) {
                    producer.flush();
                    producer.abortTransaction();
                    aborted++;
                    rewind(consumer);
                } else {
                    producer.commitTransaction();
                    copied += records.count();
                }
            }
        }
        return Map.of("copied", copied, "aborted", aborted);
    }

    private static void rewind(KafkaConsumer<?, ?> consumer) {
        Set<TopicPartition> assigned = consumer.assignment();
        var committed = consumer.committed(assigned);
        for (TopicPartition partition : assigned) {
            OffsetAndMetadata there = committed.get(partition);
            consumer.seek(partition, there == null ? 0 : there.offset());
        }
    }
}
