import static floodmark.checks.Checks.report;
import static floodmark.checks.Checks.same;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.testcontainers.containers.Network;
import org.testcontainers.kafka.ConfluentKafkaContainer;
import org.testcontainers.kafka.KafkaContainer;
import org.testcontainers.utility.DockerImageName;

/** Testcontainers' modules start an image as that of Kafka and as that of Confluent: {@code Modules IMAGE}. */
public final class Modules {
    private Modules() { }

    private static void works(String bootstrap) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.createTopics(List.of(new NewTopic("orders", 1, (short) 1))).all().get();
        }
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(Map.of("bootstrap.servers", bootstrap),
                new StringSerializer(), new StringSerializer())) {
            for (int n = 0; n < 10; n++)
                producer.send(new ProducerRecord<>("orders", "k", "order " + n)).get();
        }
        List<String> got = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(Map.of("bootstrap.servers", bootstrap, "group.id", "g",
                "auto.offset.reset", "earliest"), new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of("orders"));
            for (long end = System.currentTimeMillis() + 60_000; got.size() < 10 && System.currentTimeMillis() < end;)
                consumer.poll(Duration.ofMillis(200)).forEach(record -> got.add(record.value()));
        }
        same(got.size(), 10, "records");
    }

    public static void main(String[] arguments) {
        DockerImageName image = DockerImageName.parse(arguments[0]);
        report("KafkaContainer", () -> {
            try (KafkaContainer kafka = new KafkaContainer(image.asCompatibleSubstituteFor("apache/kafka"))) {
                kafka.start();
                works(kafka.getBootstrapServers());
            }
        });
        report("KafkaContainer with a listener for other containers", () -> {
            try (Network network = Network.newNetwork();
                 KafkaContainer kafka = new KafkaContainer(image.asCompatibleSubstituteFor("apache/kafka")).withNetwork(network)
                     .withListener("kafka:19092")) {
                kafka.start();
                works(kafka.getBootstrapServers());
            }
        });
        report("ConfluentKafkaContainer", () -> {
            try (ConfluentKafkaContainer kafka = new ConfluentKafkaContainer(image.asCompatibleSubstituteFor("confluentinc/cp-kafka"))) {
                kafka.start();
                works(kafka.getBootstrapServers());
            }
        });
        System.exit(0);
    }
}
