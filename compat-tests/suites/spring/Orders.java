package floodmark.orders;

import static floodmark.checks.Checks.LIMIT_MS;
import static floodmark.checks.Checks.report;
import static floodmark.checks.Checks.same;
import static floodmark.checks.Checks.unique;
import static floodmark.checks.Checks.until;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.IntStream;

import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.kafka.annotation.BackOff;
import org.springframework.kafka.annotation.DltHandler;
import org.springframework.kafka.annotation.EnableKafkaRetryTopic;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.annotation.RetryableTopic;
import org.springframework.kafka.config.KafkaListenerEndpointRegistry;
import org.springframework.kafka.config.TopicBuilder;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.KafkaAdmin;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.listener.CommonErrorHandler;
import org.springframework.kafka.listener.DeadLetterPublishingRecoverer;
import org.springframework.kafka.listener.DefaultErrorHandler;
import org.springframework.kafka.listener.MessageListenerContainer;
import org.springframework.kafka.support.KafkaHeaders;
import org.springframework.messaging.handler.annotation.Header;
import org.springframework.messaging.handler.annotation.SendTo;
import org.springframework.scheduling.TaskScheduler;
import org.springframework.scheduling.concurrent.ThreadPoolTaskScheduler;
import org.springframework.util.backoff.FixedBackOff;

/** An application of Spring Kafka's that takes orders: {@code Orders BOOTSTRAP PART}. Each part is an application of its own. */
public final class Orders {
    private static String bootstrap;
    private static ConfigurableApplicationContext context;
    private static KafkaTemplate<String, String> template;

    private Orders() { }

    /** An order that cannot be served. */
    static final class Refused extends RuntimeException {
        Refused(String order) {
            super("order " + order);
        }
    }

    // Listeners: two threads confirm orders by answers, which a third reads in batches.

    @Configuration
    @EnableAutoConfiguration
    static class Listening {
        final Queue<String> confirmed = new ConcurrentLinkedQueue<>();

        @Bean
        KafkaAdmin.NewTopics topics(@Value("${orders}") String orders) {
            return new KafkaAdmin.NewTopics(
                TopicBuilder.name(orders).partitions(4).config("retention.ms", "7654321").build(),
                TopicBuilder.name(orders + ".confirmed").partitions(2).build());
        }

        @KafkaListener(id = "confirming", topics = "${orders}", concurrency = "2")
        @SendTo("${orders}.confirmed")
        String confirm(String order, @Header(KafkaHeaders.RECEIVED_KEY) String customer) {
            return order + " of " + customer;
        }

        @KafkaListener(id = "reading", topics = "${orders}.confirmed", batch = "true")
        void read(List<String> some) {
            confirmed.addAll(some);
        }
    }

    private static void listener(String orders) {
        Listening parts = context.getBean(Listening.class);
        MessageListenerContainer confirming = context.getBean(KafkaListenerEndpointRegistry.class).getListenerContainer("confirming");
        report("topics are made", () -> same(context.getBean(KafkaAdmin.class).describeTopics(orders).get(orders).partitions().size(), 4, "partitions"));
        report("two threads share them", () -> until("two partitions each", () -> {
            Collection<Collection<TopicPartition>> shares = confirming.getAssignmentsByClientId().values();
            return shares.size() == 2 && shares.stream().allMatch(share -> share.size() == 2);
        }));
        Set<String> expected = new HashSet<>();
        report("orders are confirmed", () -> {
            send(orders, expected, 0, 40);
            until("40 confirmations", () -> parts.confirmed.size() >= 40);
            same(new HashSet<>(parts.confirmed), expected, "confirmed");
        });
        report("it goes on where it stopped", () -> {
            confirming.stop();
            until("stopped", () -> !confirming.isRunning());
            send(orders, expected, 40, 50);
            confirming.start();
            until("50 confirmations", () -> parts.confirmed.size() >= 50);
            Thread.sleep(500);
            same(parts.confirmed.size(), 50, "confirmations");
            same(new HashSet<>(parts.confirmed), expected, "confirmed");
        });
    }

    private static void send(String topic, Set<String> expected, int from, int to) throws Exception {
        for (int n = from; n < to; n++) {
            template.send(topic, "customer " + n, "order " + n).get();
            expected.add("order " + n + " of customer " + n);
        }
    }

    // Retries where it stands, and dead letters.

    @Configuration
    @EnableAutoConfiguration
    static class Retrying {
        final Map<String, AtomicInteger> tries = new ConcurrentHashMap<>();
        final Queue<String> served = new ConcurrentLinkedQueue<>();
        final Queue<ConsumerRecord<String, String>> dead = new ConcurrentLinkedQueue<>();

        @Bean
        NewTopic topic(@Value("${orders}") String orders) {
            return TopicBuilder.name(orders).partitions(1).build();
        }

        @Bean
        NewTopic letters(@Value("${orders}") String orders) {
            return TopicBuilder.name(orders + "-dlt").partitions(1).build();
        }

        @Bean
        CommonErrorHandler handler(KafkaTemplate<String, String> some) {
            return new DefaultErrorHandler(new DeadLetterPublishingRecoverer(some), new FixedBackOff(100, 2));
        }

        @KafkaListener(id = "serving", topics = "${orders}")
        void serve(String order) {
            int time = tries.computeIfAbsent(order, none -> new AtomicInteger()).incrementAndGet();
            if (order.equals("poisoned") || order.equals("hard") && time < 3)
                throw new Refused(order);
            served.add(order);
        }

        @KafkaListener(id = "burying", topics = "${orders}-dlt")
        void bury(ConsumerRecord<String, String> letter) {
            dead.add(letter);
        }
    }

    private static void retry(String orders) throws Exception {
        Retrying parts = context.getBean(Retrying.class);
        for (String order : List.of("easy", "hard", "poisoned", "last"))
            template.send(orders, "k", order).get();
        report("what fails twice is served at the third time", () -> {
            until("served", () -> parts.served.contains("hard"));
            same(parts.tries.get("hard").get(), 3, "tries");
        });
        report("what always fails becomes a dead letter", () -> {
            until("a dead letter", () -> !parts.dead.isEmpty());
            ConsumerRecord<String, String> letter = parts.dead.peek();
            same(letter.value(), "poisoned", "the letter");
            same(letter.key(), "k", "its key");
            same(new String(letter.headers().lastHeader(KafkaHeaders.DLT_ORIGINAL_TOPIC).value()), orders, "where it came from");
            same(parts.tries.get("poisoned").get(), 3, "tries");
        });
        report("the others are served in their order", () -> {
            until("the last", () -> parts.served.contains("last"));
            same(List.copyOf(parts.served), List.of("easy", "hard", "last"), "served");
        });
    }

    // Transactions, by the template and around a listener.

    @Configuration
    @EnableAutoConfiguration
    static class Transacting {
        final Set<String> failedOnce = ConcurrentHashMap.newKeySet();
        @Value("${orders}")
        private String orders;

        @Bean
        KafkaAdmin.NewTopics topics() {
            return new KafkaAdmin.NewTopics(TopicBuilder.name(orders).partitions(2).build(),
                TopicBuilder.name(orders + ".paid").partitions(1).build(), TopicBuilder.name(orders + ".direct").partitions(1).build());
        }

        /** The first time it fails after it has sent, for every third order. */
        @KafkaListener(id = "paying", topics = "${orders}", properties = "isolation.level=read_committed")
        void pay(String order) {
            template.send(orders + ".paid", order).join();
            if (Integer.parseInt(order) % 3 == 0 && failedOnce.add(order))
                throw new Refused(order);
        }
    }

    private static void transaction(String orders) {
        report("the template commits and rolls back", () -> {
            template.executeInTransaction(some -> some.send(orders + ".direct", "one"));
            try {
                template.executeInTransaction(some -> {
                    some.send(orders + ".direct", "never");
                    some.flush();
                    throw new Refused("never");
                });
                throw new AssertionError("the failure did not come through");
            } catch (Refused expected) {
                template.executeInTransaction(some -> some.send(orders + ".direct", "two"));
            }
            same(values(orders + ".direct", 2, "read_committed"), List.of("one", "two"), "read committed");
            same(values(orders + ".direct", 3, "read_uncommitted"), List.of("one", "never", "two"), "read uncommitted");
        });
        report("a listener's work is done once though it fails", () -> {
            List<String> all = IntStream.range(0, 30).mapToObj(String::valueOf).toList();
            template.executeInTransaction(some -> {
                all.forEach(order -> some.send(orders, Integer.parseInt(order) % 2, null, order));
                return null;
            });
            List<String> paid = new ArrayList<>(values(orders + ".paid", 30, "read_committed"));
            Thread.sleep(500);
            same(values(orders + ".paid", 31, "read_committed", 2_000).size(), 30, "how many were paid");
            paid.sort(Comparator.comparing(Integer::valueOf));
            same(paid, all, "paid");
            same(context.getBean(Transacting.class).failedOnce.size(), 10, "failures");
        });
        report("what was rolled back is there for who reads uncommitted", () ->
            same(values(orders + ".paid", 40, "read_uncommitted").size() >= 40, true, "40 or more records"));
    }

    private static List<String> values(String topic, int count, String isolation) {
        return values(topic, count, isolation, LIMIT_MS);
    }

    private static List<String> values(String topic, int count, String isolation, long limit) {
        Map<String, Object> settings = Map.of(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap,
            ConsumerConfig.ISOLATION_LEVEL_CONFIG, isolation, ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
        List<String> got = new ArrayList<>();
        try (Consumer<String, String> consumer = new DefaultKafkaConsumerFactory<>(settings, new StringDeserializer(),
                new StringDeserializer()).createConsumer()) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            for (long end = System.currentTimeMillis() + limit; got.size() < count && System.currentTimeMillis() < end;)
                consumer.poll(Duration.ofMillis(100)).forEach(record -> got.add(record.value()));
        }
        return got;
    }

    // Retries by way of topics.

    @Configuration
    @EnableAutoConfiguration
    @EnableKafkaRetryTopic
    static class Delaying {
        final Map<String, List<String>> seenIn = new ConcurrentHashMap<>();
        final Queue<String> dead = new ConcurrentLinkedQueue<>();

        @Bean
        static TaskScheduler scheduler() {  // static: the retries need it before this is made
            return new ThreadPoolTaskScheduler();
        }

        @Bean
        NewTopic topic(@Value("${orders}") String orders) {
            return TopicBuilder.name(orders).partitions(2).build();
        }

        @RetryableTopic(attempts = "3", backOff = @BackOff(delay = 200, multiplier = 2), numPartitions = "2")
        @KafkaListener(id = "delaying", topics = "${orders}")
        void serve(String order, @Header(KafkaHeaders.RECEIVED_TOPIC) String topic) {
            List<String> topics = seenIn.computeIfAbsent(order, none -> new CopyOnWriteArrayList<>());
            topics.add(topic);
            if (order.equals("poisoned") || order.equals("hard") && topics.size() < 3)
                throw new Refused(order);
        }

        @DltHandler
        void bury(String order) {
            dead.add(order);
        }
    }

    private static void retryableTopic(String orders) throws Exception {
        Delaying parts = context.getBean(Delaying.class);
        List<String> way = List.of(orders, orders + "-retry-200", orders + "-retry-400");
        report("its topics are made", () -> {
            List<String> all = new ArrayList<>(way);
            all.add(orders + "-dlt");
            Map<String, Integer> partitions = new TreeMap<>();
            context.getBean(KafkaAdmin.class).describeTopics(all.toArray(String[]::new))
                .forEach((name, told) -> partitions.put(name, told.partitions().size()));
            Map<String, Integer> expected = new TreeMap<>();
            all.forEach(name -> expected.put(name, 2));
            same(partitions, expected, "topics and their partitions");
        });
        for (String order : List.of("poisoned", "hard", "easy"))
            template.send(orders, "k", order).get();
        report("what works is served at once", () -> {
            until("served", () -> parts.seenIn.containsKey("easy"));
            same(parts.seenIn.get("easy"), way.subList(0, 1), "where it was");
        });
        report("what fails twice is served from the second topic", () -> {
            until("three tries", () -> parts.seenIn.getOrDefault("hard", List.of()).size() == 3);
            same(parts.seenIn.get("hard"), way, "where it was");
        });
        report("what always fails comes to the handler of dead letters", () -> {
            until("a dead letter", () -> !parts.dead.isEmpty());
            same(List.copyOf(parts.dead), List.of("poisoned"), "dead letters");
            same(parts.seenIn.get("poisoned"), way, "where it was");
        });
    }

    @SuppressWarnings("unchecked")
    private static void start(Class<?> application, String orders, String... more) {
        Map<String, Object> settings = new TreeMap<>(Map.of("spring.kafka.bootstrap-servers", bootstrap, "orders", orders,
            "spring.kafka.consumer.auto-offset-reset", "earliest", "spring.kafka.consumer.group-id", unique("group"),
            "spring.main.banner-mode", "off", "logging.level.root", "OFF", "spring.kafka.admin.fail-fast", "true"));
        for (int n = 0; n < more.length; n += 2)
            settings.put(more[n], more[n + 1]);
        context = new SpringApplicationBuilder(application).web(WebApplicationType.NONE).properties(settings).run();
        template = context.getBean(KafkaTemplate.class);
    }

    private static void run(String part) throws Exception {
        String orders = unique("orders");
        switch (part) {
            case "listener" -> {
                start(Listening.class, orders);
                listener(orders);
            }
            case "retry" -> {
                start(Retrying.class, orders);
                retry(orders);
            }
            case "transaction" -> {
                start(Transacting.class, orders, "spring.kafka.producer.transaction-id-prefix", unique("tx") + "-");
                transaction(orders);
            }
            default -> {
                start(Delaying.class, orders);
                retryableTopic(orders);
            }
        }
        context.close();
    }

    public static void main(String[] arguments) {
        bootstrap = arguments[0];
        try {
            run(arguments[1]);
        } catch (Throwable failure) {  // Spring would log it, and its log is off
            failure.printStackTrace(System.out);
            System.exit(1);
        }
        System.exit(0);
    }
}
