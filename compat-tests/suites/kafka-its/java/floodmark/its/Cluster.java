package floodmark.its;

import kafka.raft.KafkaRaftManager;
import kafka.server.ControllerServer;
import kafka.server.KafkaBroker;
import kafka.server.KafkaConfig;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.GroupProtocol;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.test.ClusterInstance;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.TestKitDefaults;
import org.apache.kafka.common.test.api.Type;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.raft.LeaderAndEpoch;
import org.apache.kafka.server.authorizer.Authorizer;
import org.apache.kafka.server.fault.FaultHandlerException;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.Collection;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Function;
import java.util.function.Predicate;
import java.util.stream.Collectors;

/**
 * The cluster that a test of Kafka's gets: processes, started by $NODE_COMMAND. What a test asks of Java objects inside a
 * broker is answered by {@link Answers} where the network or the disk tells it; anything else ends the test as not applicable.
 */
public final class Cluster implements ClusterInstance {
    private static final Path WORK = Path.of(System.getenv("ITS_WORK"));
    private static final long START_MS = 60_000;
    private static final long WAIT_MS = 60_000;
    /** Kafka's tests wait here until every broker has applied all metadata; from outside that cannot be seen. */
    private static final long SETTLE_MS = 150;
    private static final AtomicInteger NUMBER = new AtomicInteger();
    private static final ArrayDeque<Path> OVER = new ArrayDeque<>();

    private final ClusterConfig config;
    private final Type type;
    private final String clusterId;
    private final Map<Integer, Uuid> voters;
    private final Map<Integer, Uuid> directories;
    private final TreeMap<Integer, Node> nodes = new TreeMap<>();
    private final TreeMap<Integer, KafkaBroker> brokers = new TreeMap<>();
    private final TreeMap<Integer, ControllerServer> controllers = new TreeMap<>();
    private Path folder;
    private boolean started;
    private boolean stopped;

    public Cluster(ClusterConfig config, Type type) {
        this(config, type, Uuid.randomUuid().toString(), Map.of(), Map.of());
    }

    /**
     * {@code voters}: the directory ids of a quorum that can change; empty for one that cannot. {@code directories}: those of the
     * metadata directories that nodes are to have, whatever the voters say; nodes that are not among them choose.
     */
    public Cluster(ClusterConfig config, Type type, String clusterId, Map<Integer, Uuid> voters, Map<Integer, Uuid> directories) {
        this.config = config;
        this.type = type;
        this.clusterId = clusterId;
        this.voters = voters;
        this.directories = directories;
    }

    /** Lays out all nodes, and starts none. */
    public void layOut(String name) throws IOException {
        if (folder != null)
            return;
        makeFolder(name);
        boolean combined = type == Type.CO_KRAFT;
        int firstController = TestKitDefaults.BROKER_ID_OFFSET + (combined ? 0 : TestKitDefaults.CONTROLLER_ID_OFFSET);
        Set<Integer> brokerIds = ids(TestKitDefaults.BROKER_ID_OFFSET, config.numBrokers());
        Set<Integer> controllerIds = ids(firstController, config.numControllers());
        Set<Integer> all = new TreeSet<>(brokerIds);
        all.addAll(controllerIds);
        for (int id : config.perServerOverrideProperties().keySet())
            if (!all.contains(id))
                throw new IllegalArgumentException("Unknown server id " + id + " in perServerProperties, the existent server ids are "
                    + all.stream().map(String::valueOf).collect(Collectors.joining(", ")));
        Map<Integer, Integer> ports = new TreeMap<>();
        controllerIds.forEach(id -> ports.put(id, Node.freePort()));
        boolean fixed = voters.isEmpty() && !config.standalone();
        String quorum = ports.entrySet().stream().map(e -> (fixed ? e.getKey() + "@" : "") + "localhost:" + e.getValue())
            .collect(Collectors.joining(","));
        for (int id : all) {
            boolean isController = controllerIds.contains(id);
            Map<String, String> settings = Settings.of(config, id, brokerIds.contains(id), isController, quorum, folder);
            Settings.refusePlugins(settings);
            Map<String, Integer> own = new LinkedHashMap<>();
            if (isController)
                own.put(config.controllerListenerName().value(), ports.get(id));
            Settings.choosePorts(settings, own);
            String first = config.standalone() ? id == firstController ? "standalone" : "none"
                : fixed ? "static" : Settings.voters(voters, ports);
            Map<String, String> environment = Settings.format(config, clusterId, first);
            if (directories.containsKey(id))
                environment.put("DIRECTORY_ID", directories.get(id).toString());
            add(new Node(id, settings, own, environment, folder));
        }
    }

    private static Set<Integer> ids(int first, int count) {
        Set<Integer> ids = new TreeSet<>();
        for (int id = first; id < first + count; id++)
            ids.add(id);
        return ids;
    }

    void makeFolder(String name) throws IOException {
        folder = Files.createDirectories(WORK.resolve(String.format("%04d-%s", NUMBER.incrementAndGet(), name)));
    }

    Path folder() {
        return folder;
    }

    /** A node of this id that was there before is replaced: it must have ended. */
    Node add(Node node) {
        Node before = nodes.put(node.id, node);
        if (before != null && before.alive())
            throw new IllegalStateException("node " + node.id + " still runs");
        if (node.broker)
            brokers.put(node.id, Answers.broker(this, node));
        if (node.controller)
            controllers.put(node.id, Answers.controller(this, node));
        return node;
    }

    // Life

    @Override
    public void start() {
        if (started)
            return;
        started = true;
        try {
            layOut("cluster");
            for (Node node : nodes.values())
                node.start();
        } catch (IOException e) {
            throw new RuntimeException("a node could not be started", e);
        }
        awaitReady();
    }

    @Override
    public boolean started() {
        return started;
    }

    void markStarted() {
        started = true;
    }

    void awaitReady() {
        Set<Integer> living = living().stream().map(node -> node.id).collect(Collectors.toSet());
        long end = System.nanoTime() + START_MS * 1_000_000;
        for (Node node : nodes.values().stream().filter(Node::started).filter(n -> n.alive() || n.controller || living.contains(n.id)).toList()) {
            while (!ready(node, living)) {
                if (!node.alive())
                    throw new IllegalStateException("not started: " + node.obituary());
                if (System.nanoTime() > end)
                    throw new IllegalStateException("not ready in " + START_MS + " ms: " + node.obituary());
                Utils.sleep(40);
            }
        }
    }

    private boolean ready(Node node, Set<Integer> living) {
        if (!node.broker)
            return Node.accepts(controllerPort(node));
        if (!node.alive() || !Node.accepts(clientPort(node)))
            return false;
        try {
            Set<Integer> seen = new HashSet<>();
            Ask.brokers(clientPort(node)).brokers().forEach(broker -> seen.add(broker.id()));
            return seen.containsAll(living);
        } catch (IOException | RuntimeException notYet) {
            return false;
        }
    }

    @Override
    public void stop() {
        if (stopped)
            return;
        stopped = true;
        nodes.values().forEach(Node::kill);
        if (folder == null)
            return;
        OVER.add(folder);
        while (OVER.size() > 3)  // the newest stay, for somebody who looks after a failure
            removeData(OVER.remove());
    }

    private static void removeData(Path folder) {
        try (var entries = Files.list(folder)) {
            for (Path entry : entries.filter(Files::isDirectory).toList())
                Utils.delete(entry.toFile());
        } catch (IOException left) {
            System.err.println("left behind: " + left);
        }
    }

    @Override
    public boolean stopped() {
        return stopped;
    }

    @Override
    public void shutdownBroker(int id) {
        Node node = brokerNode(id);
        if (node.controller) {
            long all = controllers.size();
            long left = nodes.values().stream().filter(n -> n.controller && n.alive() && n != node).count();
            if (living().size() > 1 && left <= all / 2)
                throw Inapplicable.because("stops a broker whose process is a controller that is needed");
        }
        node.terminate();
    }

    @Override
    public void startBroker(int id) {
        startNode(brokerNode(id));
    }

    void startNode(Node node) {
        try {
            node.start();
        } catch (IOException e) {
            throw new RuntimeException("node " + node.id + " could not be started", e);
        }
        awaitReady();
    }

    void stopControllers() {
        nodes.values().stream().filter(node -> node.controller).forEach(Node::terminate);
    }

    @Override
    public void waitForReadyBrokers() {
        awaitReady();
    }

    private Node brokerNode(int id) {
        return nodes.values().stream().filter(node -> node.id == id && node.broker).findFirst()
            .orElseThrow(() -> new IllegalArgumentException("Unknown brokerId " + id));
    }

    private List<Node> living() {
        return nodes.values().stream().filter(node -> node.broker && node.alive()).toList();
    }

    // Addresses

    int clientPort(Node node) {
        Integer port = node.ports.get(config.brokerListenerName().value());
        return port != null ? port : node.ports.entrySet().stream()
            .filter(e -> !e.getKey().equals(config.controllerListenerName().value())).findFirst().orElseThrow().getValue();
    }

    int controllerPort(Node node) {
        return node.port(config.controllerListenerName().value());
    }

    Node controllerNode() {
        return nodes.values().stream().filter(node -> node.controller).findFirst().orElseThrow();
    }

    private List<Integer> ports(Predicate<Node> which, Function<Node, Integer> port) {
        return nodes.values().stream().filter(which).map(port).toList();
    }

    private static String addresses(List<Integer> ports) {
        return ports.stream().map(port -> "localhost:" + port).collect(Collectors.joining(","));
    }

    @Override
    public List<Integer> brokerBoundPorts() {
        return ports(node -> node.broker, this::clientPort);
    }

    @Override
    public List<Integer> controllerBoundPorts() {
        return ports(node -> node.controller, this::controllerPort);
    }

    @Override
    public String bootstrapServers() {
        return addresses(brokerBoundPorts());
    }

    @Override
    public String bootstrapControllers() {
        return addresses(controllerBoundPorts());
    }

    @Override
    public ListenerName clientListener() {
        return config.brokerListenerName();
    }

    @Override
    public ListenerName controllerListenerName() {
        return config.controllerListenerName();
    }

    // Facts

    @Override
    public Type type() {
        return type;
    }

    @Override
    public ClusterConfig config() {
        return config;
    }

    @Override
    public String clusterId() {
        return clusterId;
    }

    @Override
    public Set<Integer> brokerIds() {
        return brokers.keySet();
    }

    @Override
    public Set<Integer> controllerIds() {
        return controllers.keySet();
    }

    @Override
    public Map<Integer, KafkaBroker> brokers() {
        return new TreeMap<>(brokers);
    }

    @Override
    public Map<Integer, ControllerServer> controllers() {
        return new TreeMap<>(controllers);
    }

    @Override
    public Set<GroupProtocol> supportedGroupProtocols() {
        return Settings.groupProtocols(config);
    }

    @Override
    public Optional<FaultHandlerException> firstFatalException() {
        return Optional.empty();
    }

    @Override
    public Optional<FaultHandlerException> firstNonFatalException() {
        return Optional.empty();
    }

    // Waiting

    private static void until(String what, Callable<Boolean> reached) throws InterruptedException {
        long end = System.nanoTime() + WAIT_MS * 1_000_000;
        Exception last = null;
        while (System.nanoTime() < end) {
            try {
                if (reached.call())
                    return;
            } catch (InterruptedException e) {
                throw e;
            } catch (Exception e) {
                last = e;
            }
            Thread.sleep(50);
        }
        throw new AssertionError("not within " + WAIT_MS + " ms: " + what, last);
    }

    @Override
    public void waitTopicCreation(String topic, int partitions) throws InterruptedException {
        if (partitions <= 0)
            throw new IllegalArgumentException("Partition count must be > 0, but was " + partitions);
        for (Node node : living())
            until(topic + " has " + partitions + " partitions",
                () -> Ask.partitions(clientPort(node), topic).equals(Optional.of(partitions)));
        ensureConsistentMetadata();
    }

    @Override
    public void waitTopicDeletion(String topic) throws InterruptedException {
        for (Node node : living())
            until(topic + " is gone", () -> Ask.partitions(clientPort(node), topic).isEmpty());
        ensureConsistentMetadata();
    }

    @Override
    public void ensureConsistentMetadata() throws InterruptedException {
        Thread.sleep(SETTLE_MS);
    }

    @Override
    public void ensureConsistentMetadata(Collection<KafkaBroker> some, Collection<ControllerServer> others) throws InterruptedException {
        ensureConsistentMetadata();
    }

    @Override
    public List<Authorizer> authorizers() {
        return List.of(Answers.authorizer(this));
    }

    @Override
    public void waitAcls(AclBindingFilter filter, Collection<AccessControlEntry> wanted) throws InterruptedException {
        Set<AccessControlEntry> set = new HashSet<>(wanted);
        until("ACLs are " + wanted, () -> acls(filter).stream().map(AclBinding::entry).collect(Collectors.toSet()).equals(set));
        ensureConsistentMetadata();
    }

    Collection<AclBinding> acls(AclBindingFilter filter) throws ExecutionException, InterruptedException {
        try (Admin admin = admin()) {
            return admin.describeAcls(filter).values().get();
        }
    }

    /** Who tells the metadata for a broker: itself, or, when it has ended, one that lives. Kafka's own would know what it had known. */
    Node speaker(Node broker) {
        return broker.alive() ? broker : living().stream().findFirst().orElse(broker);
    }

    KafkaBroker brokerStandIn(int id) {
        return brokers.get(id);
    }

    static KafkaConfig parsed(Node node) {
        return new KafkaConfig(Map.copyOf(node.settings), false);
    }

    /** A broker's settings, with those that have changed while it runs. */
    KafkaConfig current(Node node) {
        Map<String, String> changed = Map.of();
        try {
            if (node.alive())
                changed = Ask.dynamicConfig(clientPort(node), node.id);
        } catch (IOException | RuntimeException notNow) {
            changed = Map.of();
        }
        Map<String, String> all = new TreeMap<>(node.settings);
        all.putAll(changed);
        return new KafkaConfig(all, false);
    }

    /** Who leads the controllers, as one node knows it, or can find out. */
    LeaderAndEpoch leaderAndEpoch(Node node) {
        try {
            return Ask.quorumLeader(node.broker ? clientPort(node) : controllerPort(node));
        } catch (IOException notNow) {
            return LeaderAndEpoch.UNKNOWN;
        }
    }

    /** Waits until a controller of this cluster leads it; its id. */
    public int activeController() throws InterruptedException {
        AtomicInteger found = new AtomicInteger();
        until("a controller is active", () -> nodes.values().stream().filter(node -> node.controller && node.alive())
            .filter(node -> leaderAndEpoch(node).isLeader(node.id)).peek(node -> found.set(node.id)).findFirst().isPresent());
        return found.get();
    }

    public Map<Integer, KafkaRaftManager<?>> raftManagers() {
        Map<Integer, KafkaRaftManager<?>> all = new TreeMap<>();
        nodes.forEach((id, node) -> all.put(id, Answers.raft(this, node)));
        return all;
    }
}
