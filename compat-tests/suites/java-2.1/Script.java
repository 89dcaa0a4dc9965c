import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.InvalidTopicException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;

/** The common script (lib/script.py) through Kafka's Java clients from 2.1 on: it uses nothing newer. */
public final class Script {
    private static final long LIMIT_MS = 30_000;
    private static String bootstrap;
    private static AdminClient admin;

    interface Work {
        void run() throws Exception;
    }

    private static void report(String name, Work work) {
        try {
            work.run();
            System.out.println("passed " + name);
        } catch (Throwable failure) {
            System.out.println(("failed " + name + " -- " + failure).replace("\n", " "));
        }
    }

    private static void same(Object got, Object wanted, String what) {
        if (!got.equals(wanted))
            throw new AssertionError(what + ": " + got + " instead of " + wanted);
    }

    private static void until(String what, Callable<Boolean> reached) throws Exception {
        for (long end = System.currentTimeMillis() + LIMIT_MS; !reached.call(); Thread.sleep(100))
            if (System.currentTimeMillis() > end)
                throw new AssertionError("not within " + LIMIT_MS + " ms: " + what);
    }

    private static void refused(Class<? extends Throwable> wanted, Work work) throws Exception {
        try {
            work.run();
        } catch (Throwable thrown) {
            Throwable error = thrown instanceof ExecutionException ? thrown.getCause() : thrown;
            if (wanted.isInstance(error))
                return;
            throw new AssertionError(wanted.getSimpleName() + " was due, and came " + error);
        }
        throw new AssertionError(wanted.getSimpleName() + " was due, and came nothing");
    }

    private static String unique(String word) {
        return word + "-" + UUID.randomUUID().toString().substring(0, 8);
    }

    private static short copies() {
        return (short) Math.min(3, bootstrap.split(",").length);
    }

    private static int partitions(String name) throws Exception {
        try {
            return admin.describeTopics(Collections.singleton(name)).all().get().get(name).partitions().size();
        } catch (ExecutionException absent) {
            return 0;
        }
    }

    private static String topic(int count, Map<String, String> settings) throws Exception {
        String name = unique("java");
        admin.createTopics(Collections.singleton(new NewTopic(name, count, copies()).configs(settings))).all().get();
        until(name + " is there", () -> partitions(name) == count);
        return name;
    }

    private static ConfigResource resource(String name) {
        return new ConfigResource(ConfigResource.Type.TOPIC, name);
    }

    private static String setting(String name, String key) throws Exception {
        return admin.describeConfigs(Collections.singleton(resource(name))).all().get().get(resource(name)).get(key).value();
    }

    private static void configure(String name, String key, String value) throws Exception {
        Config config = new Config(Collections.singleton(new ConfigEntry(key, value)));
        admin.alterConfigs(Collections.singletonMap(resource(name), config)).all().get();
        until(key + " is " + value, () -> value.equals(setting(name, key)));
    }

    private static Map<String, Object> settings(Object... more) {
        Map<String, Object> all = new HashMap<>();
        all.put("bootstrap.servers", bootstrap);
        for (int n = 0; n < more.length; n += 2)
            all.put((String) more[n], more[n + 1]);
        return all;
    }

    private static KafkaProducer<String, String> producer(Object... more) {
        return new KafkaProducer<>(settings(more), new StringSerializer(), new StringSerializer());
    }

    private static KafkaConsumer<String, String> consumer(Object... more) {
        Map<String, Object> all = settings("enable.auto.commit", "false", "auto.offset.reset", "earliest", "group.id", unique("group"));
        all.putAll(settings(more));
        return new KafkaConsumer<>(all, new StringDeserializer(), new StringDeserializer());
    }

    private static List<String> produce(String name, int count, int partition, String prefix, String codec) throws Exception {
        List<String> sent = new ArrayList<>();
        try (KafkaProducer<String, String> producer = producer("compression.type", codec, "enable.idempotence", "true", "acks", "all")) {
            for (int n = 0; n < count; n++) {
                int where = partition < 0 ? n % 3 : partition;
                String key = prefix + "k" + n;
                String value = prefix + "v" + n + "-filling-filling-filling";
                producer.send(new ProducerRecord<>(name, where, key, value, Collections.singleton(new RecordHeader("h", key.getBytes()))));
                sent.add(where + key + value + key);
            }
            producer.flush();
        }
        return sent;
    }

    private static String text(ConsumerRecord<String, String> record) {
        return record.partition() + record.key() + record.value() + new String(record.headers().lastHeader("h").value());
    }

    private static List<ConsumerRecord<String, String>> poll(KafkaConsumer<String, String> consumer, int count, long limit) {
        List<ConsumerRecord<String, String>> got = new ArrayList<>();
        for (long end = System.currentTimeMillis() + limit; got.size() < count && System.currentTimeMillis() < end;)
            consumer.poll(Duration.ofMillis(200)).forEach(got::add);
        return got;
    }

    private static List<ConsumerRecord<String, String>> read(String name, long offset, int count, long limit, Object... more) {
        try (KafkaConsumer<String, String> consumer = consumer(more)) {
            List<TopicPartition> all = new ArrayList<>();
            consumer.partitionsFor(name).forEach(p -> all.add(new TopicPartition(name, p.partition())));
            consumer.assign(all);
            all.forEach(p -> consumer.seek(p, offset));
            return poll(consumer, count, limit);
        }
    }

    private static void compare(List<ConsumerRecord<String, String>> got, List<String> sent) {
        List<String> texts = new ArrayList<>();
        got.forEach(record -> texts.add(text(record)));
        Collections.sort(texts);
        List<String> sorted = new ArrayList<>(sent);
        Collections.sort(sorted);
        same(texts, sorted, "what was read");
    }

    private static void partAdmin() {
        String[] name = new String[1];
        report("create", () -> name[0] = topic(3, Collections.singletonMap("retention.ms", "123456")));
        report("describe", () -> same(setting(name[0], "retention.ms"), "123456", "retention.ms"));
        report("configure", () -> configure(name[0], "retention.ms", "7777"));
        report("grow", () -> {
            admin.createPartitions(Collections.singletonMap(name[0], NewPartitions.increaseTo(5))).all().get();
            until("five partitions", () -> partitions(name[0]) == 5);
        });
        report("delete", () -> {
            admin.deleteTopics(Collections.singleton(name[0])).all().get();
            until("gone", () -> !admin.listTopics().names().get().contains(name[0]));
        });
    }

    private static void partProduce() {
        for (String codec : Arrays.asList("none", "gzip", "snappy", "lz4", "zstd"))
            report(codec, () -> {
                String name = topic(3, Collections.emptyMap());
                List<String> sent = produce(name, 100, -1, "", codec);
                compare(read(name, 0, 100, LIMIT_MS), sent);
            });
    }

    private static void partConsume() throws Exception {
        String name = topic(1, Collections.emptyMap());
        List<String> sent = produce(name, 50, 0, "", "none");
        Thread.sleep(50);
        long moment = System.currentTimeMillis();
        sent.addAll(produce(name, 50, 0, "later-", "none"));
        report("from an offset", () -> compare(read(name, 30, 70, LIMIT_MS), sent.subList(30, 100)));
        report("from a time", () -> {
            TopicPartition partition = new TopicPartition(name, 0);
            try (KafkaConsumer<String, String> consumer = consumer()) {
                same(consumer.offsetsForTimes(Collections.singletonMap(partition, moment)).get(partition).offset(), 50L, "the offset");
            }
        });
        report("to the end", () -> compare(read(name, 90, 11, 3000), sent.subList(90, 100)));
    }

    private static void partErrors() throws Exception {
        String name = topic(1, Collections.emptyMap());
        report("topic exists", () -> refused(TopicExistsException.class,
            () -> admin.createTopics(Collections.singleton(new NewTopic(name, 1, copies()))).all().get()));
        report("invalid topic", () -> refused(InvalidTopicException.class,
            () -> admin.createTopics(Collections.singleton(new NewTopic("no/such", 1, copies()))).all().get()));
        report("unknown topic", () -> refused(UnknownTopicOrPartitionException.class,
            () -> admin.deleteTopics(Collections.singleton("not-" + name)).all().get()));
        report("out of range", () -> refused(OffsetOutOfRangeException.class,
            () -> read(name, 99, 1, LIMIT_MS, "auto.offset.reset", "none")));
        report("too large", () -> {
            configure(name, "max.message.bytes", "1000");
            try (KafkaProducer<String, String> producer = producer()) {
                char[] big = new char[5000];
                Arrays.fill(big, 'x');
                refused(RecordTooLargeException.class, () -> producer.send(new ProducerRecord<>(name, new String(big))).get());
            }
        });
    }

    private static void partGroup() throws Exception {
        String name = topic(4, Collections.emptyMap());
        String group = unique("group");
        report("two members", () -> {
            List<String> sent = new ArrayList<>();
            for (int partition = 0; partition < 4; partition++)
                sent.addAll(produce(name, 10, partition, partition + "-", "none"));
            try (KafkaConsumer<String, String> one = consumer("group.id", group); KafkaConsumer<String, String> two = consumer("group.id", group)) {
                one.subscribe(Collections.singleton(name));
                two.subscribe(Collections.singleton(name));
                Set<String> got = new TreeSet<>();
                until("two members with two partitions each, and all records", () -> {
                    for (KafkaConsumer<String, String> member : Arrays.asList(one, two))
                        poll(member, 40, 200).forEach(record -> got.add(text(record)));
                    return got.size() == 40 && one.assignment().size() == 2 && two.assignment().size() == 2;
                });
                same(got, new TreeSet<>(sent), "what was read");
                one.commitSync(tens(one.assignment()));
                two.commitSync(tens(two.assignment()));
            }
        });
        report("committed", () -> {
            List<String> sent = produce(name, 5, 2, "after-", "none");
            try (KafkaConsumer<String, String> member = consumer("group.id", group)) {
                member.subscribe(Collections.singleton(name));
                compare(poll(member, 5, LIMIT_MS), sent);
                for (int partition = 0; partition < 4; partition++)
                    same(member.committed(new TopicPartition(name, partition)).offset(), 10L, "committed in " + partition);
            }
        });
        report("list", () -> same(admin.listConsumerGroups().all().get().stream().anyMatch(g -> g.groupId().equals(group)), true, "listed"));
    }

    private static Map<TopicPartition, OffsetAndMetadata> tens(Set<TopicPartition> partitions) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        partitions.forEach(partition -> offsets.put(partition, new OffsetAndMetadata(10)));
        return offsets;
    }

    private static void partTransaction() throws Exception {
        String name = topic(1, Collections.emptyMap());
        KafkaProducer<String, String> producer = producer("transactional.id", unique("t"));
        report("commit", () -> {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(name, "one"));
            producer.commitTransaction();
            same(values(name, 1, "read_committed"), Arrays.asList("one"), "what is read");
        });
        report("abort", () -> {
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(name, "never"));
            producer.flush();
            producer.abortTransaction();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(name, "two"));
            producer.commitTransaction();
            same(values(name, 2, "read_committed"), Arrays.asList("one", "two"), "what is read committed");
            same(values(name, 3, "read_uncommitted"), Arrays.asList("one", "never", "two"), "what is read uncommitted");
        });
        report("offsets", () -> {
            String group = unique("group");
            TopicPartition partition = new TopicPartition(name, 0);
            producer.beginTransaction();
            producer.sendOffsetsToTransaction(Collections.singletonMap(partition, new OffsetAndMetadata(3)), group);
            producer.commitTransaction();
            try (KafkaConsumer<String, String> member = consumer("group.id", group)) {
                same(member.committed(partition).offset(), 3L, "the committed offset");
            }
        });
        producer.close();
    }

    private static List<String> values(String name, int count, String isolation) {
        List<String> values = new ArrayList<>();
        read(name, 0, count, LIMIT_MS, "isolation.level", isolation).forEach(record -> values.add(record.value()));
        return values;
    }

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        admin = AdminClient.create(settings());
        switch (arguments[1]) {
            case "admin": partAdmin(); break;
            case "produce": partProduce(); break;
            case "consume": partConsume(); break;
            case "errors": partErrors(); break;
            case "group": partGroup(); break;
            default: partTransaction();
        }
        System.exit(0);
    }
}
