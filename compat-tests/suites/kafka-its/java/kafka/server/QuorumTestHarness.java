package kafka.server;

import com.typesafe.scalalogging.Logger;
import com.typesafe.scalalogging.Logger$;

import floodmark.its.Harness;

import kafka.utils.Logging;
import kafka.utils.TestInfoUtils;

import org.apache.kafka.clients.consumer.GroupProtocol;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.metadata.storage.Formatter;
import org.apache.kafka.server.common.Feature;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.server.common.TransactionVersion;
import org.apache.kafka.server.fault.MockFaultHandler;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.TestInfo;
import org.junit.jupiter.params.provider.Arguments;
import org.slf4j.LoggerFactory;

import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.stream.Stream;

import scala.Option;
import scala.collection.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * In the place of Kafka's class of this name, from which the older Scala tests come: its controller and brokers are processes.
 * The members are those that its heirs override or call.
 */
public abstract class QuorumTestHarness implements Logging {
    private final QuorumTestHarnessFaultHandlerFactory faults =
        new QuorumTestHarnessFaultHandlerFactory(new MockFaultHandler("its"));
    private Logger logger;
    private String logIdent;
    private TestInfo test;
    private Harness harness;
    private QuorumImplementation implementation;

    @BeforeEach
    public void setUp(TestInfo info) {
        test = info;
        if (controllerListenerSecurityProtocol() != SecurityProtocol.PLAINTEXT || !extraControllerSecurityProtocols().isEmpty())
            throw Harness.inapplicable("a controller's listener other than PLAINTEXT");
        Formatter formatter = new Formatter();
        addFormatterSettings(formatter);
        if (Harness.hasUsers(formatter))
            throw Harness.inapplicable("users in the metadata from the beginning (SCRAM)");
        TransactionVersion version = TestInfoUtils.isTransactionV2Enabled(info) ? TransactionVersion.TV_2 : TransactionVersion.TV_1;
        Map<String, String> settings = new HashMap<>();
        kraftControllerConfigs(info).head().forEach((name, value) -> settings.put(name.toString(), value.toString()));
        harness = new Harness(getClass().getSimpleName(), metadataVersion(),
            Map.of(Feature.TRANSACTION_VERSION, version.featureLevel()), settings);
        implementation = new QuorumImplementation() {
            @Override
            public KafkaBroker createBroker(KafkaConfig config, Time time, boolean startup, Option<String> prefix) {
                return harness.addBroker(config, startup);
            }

            @Override
            public void shutdown() {
                harness.cluster().stop();
            }
        };
    }

    @AfterEach
    public void tearDown() {
        if (harness != null)
            harness.cluster().stop();
        kafka.utils.TestUtils.clearYammerMetrics();
        System.clearProperty("java.security.auth.login.config");
        javax.security.auth.login.Configuration.setConfiguration(null);
    }

    // For heirs to override

    public SecurityProtocol controllerListenerSecurityProtocol() {
        return SecurityProtocol.PLAINTEXT;
    }

    public Seq<SecurityProtocol> extraControllerSecurityProtocols() {
        return CollectionConverters.asScala(List.<SecurityProtocol>of()).toSeq();
    }

    public Seq<Properties> kraftControllerConfigs(TestInfo info) {
        return CollectionConverters.asScala(List.of(new Properties())).toSeq();
    }

    public MetadataVersion metadataVersion() {
        return MetadataVersion.latestTesting();
    }

    public void addFormatterSettings(Formatter formatter) { }

    // For heirs to call

    public KafkaBroker createBroker(KafkaConfig config, Time time, boolean startup, Option<String> threadNamePrefix) {
        return harness.addBroker(config, startup);
    }

    public Time createBroker$default$2() {
        return Time.SYSTEM;
    }

    public boolean createBroker$default$3() {
        return true;
    }

    public Option<String> createBroker$default$4() {
        return Option.empty();
    }

    public ControllerServer controllerServer() {
        return harness.cluster().controllers().values().iterator().next();
    }

    public Seq<ControllerServer> controllerServers() {
        return CollectionConverters.asScala(List.of(controllerServer())).toSeq();
    }

    public void shutdownKRaftController() {
        harness.stopController();
    }

    public QuorumImplementation implementation() {
        return implementation;
    }

    public void implementation_$eq(QuorumImplementation value) {
        implementation = value;
    }

    public QuorumTestHarnessFaultHandlerFactory faultHandlerFactory() {
        return faults;
    }

    public MockFaultHandler faultHandler() {
        return faults.faultHandler();
    }

    public Option<GroupProtocol> maybeGroupProtocolSpecified() {
        return TestInfoUtils.maybeGroupProtocolSpecified(test);
    }

    public GroupProtocol groupProtocolFromTestParameters() {
        return maybeGroupProtocolSpecified().getOrElse(() -> {
            throw new IllegalStateException("this test has no group protocol among its parameters");
        });
    }

    @Override
    public synchronized Logger logger() {
        if (logger == null)
            logger = Logger$.MODULE$.apply(LoggerFactory.getLogger(getClass()));
        return logger;
    }

    @Override
    public String logIdent() {
        return logIdent;
    }

    @Override
    public void logIdent_$eq(String ident) {
        logIdent = ident;
    }

    // Statics, as Scala's companion object has them

    public static void verifyNoUnexpectedThreads(String context) { }

    public static void setUpClass() { }

    public static void tearDownClass() { }

    private static Stream<Arguments> names(GroupProtocol... protocols) {
        return Arrays.stream(protocols).map(protocol -> Arguments.of(protocol.name().toLowerCase(Locale.ROOT)));
    }

    public static Stream<Arguments> getTestGroupProtocolParametersAll() {
        return names(GroupProtocol.CLASSIC, GroupProtocol.CONSUMER);
    }

    public static Stream<Arguments> getTestGroupProtocolParametersClassicGroupProtocolOnly() {
        return names(GroupProtocol.CLASSIC);
    }

    public static Stream<Arguments> getTestGroupProtocolParametersConsumerGroupProtocolOnly() {
        return names(GroupProtocol.CONSUMER);
    }
}
