package floodmark.its;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;

/** One node: its settings in a file, its ports by listener, and the process while there is one. */
final class Node {
    private static final Set<Process> RUNNING = ConcurrentHashMap.newKeySet();
    private static final int FIRST_PORT = 20_000;
    private static final int PORTS = 10_000;
    private static int nextPort = (int) (ProcessHandle.current().pid() * 31 % PORTS);

    static {
        Runtime.getRuntime().addShutdownHook(new Thread(() -> RUNNING.forEach(Node::destroy)));
    }

    final int id;
    final boolean broker;
    final boolean controller;
    final Map<String, String> settings;
    final Map<String, Integer> ports;
    private final Map<String, String> environment;
    private final Path file;
    private final Path log;
    private Process process;
    /** Whether the end of this process was asked for, or has been told to the test. */
    private boolean endKnown;

    Node(int id, Map<String, String> settings, Map<String, Integer> ports, Map<String, String> environment, Path folder)
            throws IOException {
        this.id = id;
        this.settings = settings;
        this.ports = ports;
        this.environment = environment;
        this.broker = settings.get("process.roles").contains("broker");
        this.controller = settings.get("process.roles").contains("controller");
        this.file = folder.resolve("node-" + id + ".properties");
        this.log = folder.resolve("node-" + id + ".log");
        List<String> lines = new ArrayList<>();
        new TreeMap<>(settings).forEach((name, value) ->
            lines.add(name + "=" + value.replace("\\", "\\\\").replace("\n", "\\n")));
        Files.write(file, lines);
    }

    synchronized void start() throws IOException {
        if (alive())
            throw new IllegalStateException("node " + id + " runs already");
        noteEnd();
        ProcessBuilder builder = new ProcessBuilder(System.getenv("NODE_COMMAND"), file.toString())
            .redirectErrorStream(true)
            .redirectInput(Path.of("/dev/null").toFile())
            .redirectOutput(ProcessBuilder.Redirect.appendTo(log.toFile()));
        builder.environment().putAll(environment);
        process = builder.start();
        endKnown = false;
        RUNNING.add(process);
    }

    synchronized boolean alive() {
        return process != null && process.isAlive();
    }

    synchronized boolean started() {
        return process != null;
    }

    /** An orderly stop, as a test asks for it. */
    void terminate() {
        noteEnd();
        if (process != null)
            process.destroy();
        awaitEnd(60);
    }

    /** The end of a test: nobody needs the data any more. */
    void kill() {
        noteEnd();
        if (process != null)
            destroy(process);
        awaitEnd(10);
    }

    /**
     * What happens to a process from here on was asked for. If it has ended before, and no test has heard of it, its log says so, in
     * words for which the suite fails (lib/suites.py): the tests of clients may not notice that a broker is gone.
     */
    private synchronized void noteEnd() {
        if (process != null && !process.isAlive() && !endKnown)
            try {
                String words = String.format("=== node %d ended by itself, with %d%n", id, process.exitValue());
                Files.writeString(log, words, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        endKnown = true;
    }

    synchronized void awaitEnd(int seconds) {
        if (process == null)
            return;
        try {
            if (!process.waitFor(seconds, TimeUnit.SECONDS)) {
                destroy(process);
                process.waitFor(10, TimeUnit.SECONDS);
            }
        } catch (InterruptedException e) {
            destroy(process);
            Thread.currentThread().interrupt();
        }
        RUNNING.remove(process);
    }

    private static void destroy(Process process) {
        process.descendants().forEach(ProcessHandle::destroyForcibly);
        process.destroyForcibly();
    }

    /** How it ended, with the last of its log that is no warning. */
    synchronized String obituary() {
        endKnown |= process != null && !process.isAlive();
        String end = process == null ? "was not started" : process.isAlive() ? "runs" : "ended with " + process.exitValue();
        String text;
        try {
            List<String> lines = Files.readString(log, StandardCharsets.UTF_8).lines().filter(l -> !l.contains(" WARN ")).toList();
            text = String.join(" | ", lines.subList(Math.max(0, lines.size() - 4), lines.size()));
        } catch (IOException e) {
            text = "(no log)";
        }
        return "node " + id + " " + end + ": " + text;
    }

    int port(String listener) {
        Integer port = ports.get(listener);
        if (port == null)
            throw new IllegalArgumentException("node " + id + " has no listener " + listener + " but " + ports.keySet());
        return port;
    }

    static boolean accepts(int port) {
        try (Socket socket = new Socket()) {
            socket.connect(new InetSocketAddress(InetAddress.getLoopbackAddress(), port), 1000);
            return true;
        } catch (IOException e) {
            return false;
        }
    }

    /** A port that nobody has, outside the range from which the system gives ports to outgoing connections. */
    static synchronized int freePort() {
        for (int tries = 0; tries < PORTS; tries++) {
            int port = FIRST_PORT + nextPort;
            nextPort = (nextPort + 1) % PORTS;
            try (ServerSocket socket = new ServerSocket()) {
                socket.bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), port));
                return port;
            } catch (IOException taken) {
                continue;
            }
        }
        throw new IllegalStateException("all ports are taken");
    }
}
