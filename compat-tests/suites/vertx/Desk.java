import static floodmark.checks.Checks.report;
import static floodmark.checks.Checks.same;
import static floodmark.checks.Checks.unique;
import static floodmark.checks.Checks.until;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

import io.vertx.core.Future;
import io.vertx.core.Vertx;
import io.vertx.kafka.admin.KafkaAdminClient;
import io.vertx.kafka.admin.NewTopic;
import io.vertx.kafka.client.common.TopicPartition;
import io.vertx.kafka.client.consumer.KafkaConsumer;
import io.vertx.kafka.client.producer.KafkaProducer;
import io.vertx.kafka.client.producer.KafkaProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** An application of Vert.x's Kafka client, whose calls all come back by futures: {@code Desk BOOTSTRAP PART}. */
public final class Desk {
    private static final Vertx VERTX = Vertx.vertx();
    private static String bootstrap;
    private static KafkaAdminClient admin;

    private static <T> T now(Future<T> future) throws Exception {
        return future.toCompletionStage().toCompletableFuture().get(60, TimeUnit.SECONDS);
    }

    private static Map<String, String> settings(Map<String, String> more) {
        Map<String, String> all = new HashMap<>(Map.of("bootstrap.servers", bootstrap,
            "key.serializer", StringSerializer.class.getName(), "value.serializer", StringSerializer.class.getName(),
            "key.deserializer", StringDeserializer.class.getName(), "value.deserializer", StringDeserializer.class.getName(),
            "auto.offset.reset", "earliest", "enable.auto.commit", "false", "group.id", unique("group")));
        all.putAll(more);
        return all;
    }

    private static KafkaConsumer<String, String> consumer(Map<String, String> more) {
        return KafkaConsumer.create(VERTX, settings(more));
    }

    private static KafkaProducer<String, String> producer(Map<String, String> more) {
        return KafkaProducer.create(VERTX, settings(more));
    }

    private static String topic(int partitions) throws Exception {
        String name = unique("desk");
        short copies = (short) Math.min(3, bootstrap.split(",").length);
        now(admin.createTopics(List.of(new NewTopic(name, partitions, copies))));
        return name;
    }

    private static List<String> send(String topic, int partition, int from, int to) throws Exception {
        KafkaProducer<String, String> producer = producer(Map.of("linger.ms", "5"));
        List<Future<?>> acknowledged = new ArrayList<>();
        List<String> sent = new ArrayList<>();
        for (int n = from; n < to; n++) {
            acknowledged.add(producer.send(KafkaProducerRecord.create(topic, "k" + n, "v" + n, partition)));
            sent.add("v" + n);
        }
        now(Future.all(acknowledged));
        now(producer.close());
        return sent;
    }

    private static List<String> read(String topic, int count, Map<String, String> more) throws Exception {
        Queue<String> got = new ConcurrentLinkedQueue<>();
        KafkaConsumer<String, String> consumer = consumer(more);
        consumer.handler(record -> got.add(record.value()));
        now(consumer.assign(Set.of(new TopicPartition(topic, 0))));
        until(count + " records", () -> got.size() >= count);
        now(consumer.close());
        return List.copyOf(got);
    }

    private static void partAdmin() {
        String[] name = new String[1];
        report("create", () -> name[0] = topic(3));
        report("describe", () -> same(now(admin.describeTopics(List.of(name[0]))).get(name[0]).getPartitions().size(), 3, "partitions"));
        report("list", () -> same(now(admin.listTopics()).contains(name[0]), true, "listed"));
        report("delete", () -> {
            now(admin.deleteTopics(List.of(name[0])));
            until("gone", () -> !now(admin.listTopics()).contains(name[0]));
        });
    }

    private static void partStream() throws Exception {
        String source = topic(1), target = topic(1);
        List<String> sent = send(source, 0, 0, 500);
        report("one stream flows into the other", () -> {
            KafkaConsumer<String, String> consumer = consumer(Map.of());
            KafkaProducer<String, String> producer = producer(Map.of());
            producer.setWriteQueueMaxSize(64);
            AtomicInteger full = new AtomicInteger();
            consumer.handler(record -> {
                producer.write(KafkaProducerRecord.create(target, record.key(), record.value(), 0));
                if (producer.writeQueueFull()) {
                    full.incrementAndGet();
                    consumer.pause();
                    producer.drainHandler(drained -> consumer.resume());
                }
            });
            now(consumer.assign(Set.of(new TopicPartition(source, 0))));
            same(read(target, 500, Map.of()), sent, "the other stream");
            same(full.get() > 0, true, "whether it was pushed back");
            now(consumer.close());
            now(producer.close());
        });
        report("it fetches one at a time", () -> {
            Queue<String> got = new ConcurrentLinkedQueue<>();
            KafkaConsumer<String, String> consumer = consumer(Map.of());
            consumer.handler(record -> got.add(record.value()));
            consumer.pause();
            now(consumer.assign(Set.of(new TopicPartition(source, 0))));
            Thread.sleep(300);
            same(got.size(), 0, "records while it pauses");
            consumer.fetch(3);
            until("three records", () -> got.size() >= 3);
            Thread.sleep(300);
            same(List.copyOf(got), sent.subList(0, 3), "records");
            now(consumer.close());
        });
    }

    private static void partGroup() throws Exception {
        String name = topic(4), group = unique("group");
        Set<String> sent = new TreeSet<>();
        for (int partition = 0; partition < 4; partition++)
            sent.addAll(send(name, partition, 100 * partition, 100 * partition + 10));
        report("two members", () -> {
            Queue<String> got = new ConcurrentLinkedQueue<>();
            List<KafkaConsumer<String, String>> members = List.of(consumer(Map.of("group.id", group)), consumer(Map.of("group.id", group)));
            for (KafkaConsumer<String, String> member : members) {
                member.handler(record -> got.add(record.value()));
                now(member.subscribe(name));
            }
            until("two partitions each, and all records", () -> new TreeSet<>(got).equals(sent)
                && now(members.get(0).assignment()).size() == 2 && now(members.get(1).assignment()).size() == 2);
            for (KafkaConsumer<String, String> member : members) {
                now(member.commit());
                now(member.close());
            }
        });
        report("committed", () -> {
            List<String> more = send(name, 2, 900, 905);
            Queue<String> got = new ConcurrentLinkedQueue<>();
            KafkaConsumer<String, String> member = consumer(Map.of("group.id", group));
            member.handler(record -> got.add(record.value()));
            now(member.subscribe(name));
            until("five records", () -> got.size() >= 5);
            same(List.copyOf(got), more, "what the next member reads");
            same(now(member.committed(new TopicPartition(name, 2))).getOffset(), 10L, "the committed offset");
            now(member.close());
        });
        report("list", () -> same(now(admin.listConsumerGroups()).stream().anyMatch(one -> one.getGroupId().equals(group)), true, "listed"));
    }

    private static void partTransaction() throws Exception {
        String name = topic(1);
        KafkaProducer<String, String> producer = producer(Map.of("transactional.id", unique("t"), "acks", "all"));
        report("commit", () -> {
            now(producer.initTransactions());
            now(producer.beginTransaction());
            now(producer.send(KafkaProducerRecord.create(name, "one")));
            now(producer.commitTransaction());
            same(read(name, 1, Map.of("isolation.level", "read_committed")), List.of("one"), "what is read");
        });
        report("abort", () -> {
            now(producer.beginTransaction());
            now(producer.send(KafkaProducerRecord.create(name, "never")));
            now(producer.abortTransaction());
            now(producer.beginTransaction());
            now(producer.send(KafkaProducerRecord.create(name, "two")));
            now(producer.commitTransaction());
            same(read(name, 2, Map.of("isolation.level", "read_committed")), List.of("one", "two"), "what is read committed");
            same(read(name, 3, Map.of()), List.of("one", "never", "two"), "what is read uncommitted");
        });
        now(producer.close());
    }

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        admin = KafkaAdminClient.create(VERTX, Map.of("bootstrap.servers", bootstrap));
        switch (arguments[1]) {
            case "admin" -> partAdmin();
            case "stream" -> partStream();
            case "group" -> partGroup();
            default -> partTransaction();
        }
        System.exit(0);
    }
}
