import java.util.Arrays;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

/**
 * Counts words with Kafka Streams, exactly once. A value is a number that is not counted, and words. Without a cache every count is
 * told; the store is in memory, so that who takes over restores it from its topic. Runs until it is killed.
 *
 * WordCount BOOTSTRAP SOURCE TARGET TRANSACTION_LIMIT_MS STATE_DIRECTORY
 */
public final class WordCount {
    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.put("application.id", "word-count");
        settings.put("bootstrap.servers", args[0]);
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("state.dir", args[4]);
        settings.put("statestore.cache.max.bytes", 0);
        settings.put("commit.interval.ms", 100);
        settings.put("num.stream.threads", 1);
        settings.put("producer.transaction.timeout.ms", Integer.parseInt(args[3]));
        settings.put("main.consumer.session.timeout.ms", 6000);
        settings.put("main.consumer.heartbeat.interval.ms", 1000);

        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(args[1], Consumed.with(Serdes.String(), Serdes.String()))
            .flatMapValues(value -> Arrays.asList(value.split(" ")).subList(1, value.split(" ").length))
            .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
            .count(Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("counts")).withKeySerde(Serdes.String()).withValueSerde(Serdes.Long()))
            .toStream()
            .mapValues(count -> Long.toString(count))
            .to(args[2], Produced.with(Serdes.String(), Serdes.String()));

        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setUncaughtExceptionHandler(failure -> {
            failure.printStackTrace();
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        streams.start();
        new CountDownLatch(1).await();
    }
}
