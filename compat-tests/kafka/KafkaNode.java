import java.io.FileInputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;
import org.apache.kafka.common.Uuid;

/** Runs one node of Apache Kafka in the foreground, given a server.properties; formats its log directories if they are new. */
public final class KafkaNode {
    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        try (FileInputStream in = new FileInputStream(args[0])) {
            properties.load(in);
        }
        boolean isNew = false;
        for (String directory : properties.getProperty("log.dirs").split(",")) {
            isNew |= !Files.exists(Path.of(directory.trim(), "meta.properties"));
        }
        if (isNew) {
            String given = System.getenv("CLUSTER_ID");
            String clusterId = given != null ? given : Uuid.randomUuid().toString();
            String[] format = {"format", "-t", clusterId, "-c", args[0], "--ignore-formatted"};
            int status = kafka.tools.StorageTool.execute(format, System.out);
            if (status != 0) {
                System.exit(status);
            }
        }
        kafka.Kafka.main(args);
    }
}
