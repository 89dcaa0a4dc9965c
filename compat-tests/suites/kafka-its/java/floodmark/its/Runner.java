package floodmark.its;

import org.apache.kafka.common.test.api.ClusterTemplate;
import org.apache.kafka.common.test.api.ClusterTest;
import org.apache.kafka.common.test.api.ClusterTests;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.platform.engine.DiscoverySelector;
import org.junit.platform.engine.FilterResult;
import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.engine.discovery.DiscoverySelectors;
import org.junit.platform.engine.support.descriptor.MethodSource;
import org.junit.platform.launcher.PostDiscoveryFilter;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestIdentifier;
import org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder;
import org.junit.platform.launcher.core.LauncherFactory;

import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * Runs tests of Kafka's, one class after the other, and prints a line for each: {@code outcome TAB name TAB seconds TAB reason}.
 * Arguments: files with one test a line (a full class name, or {@code Class#method}, or {@code Class#method[2]}), after --list to
 * print the names and cluster sizes (brokers, controllers) of what the classes have.
 */
public final class Runner {
    private Runner() { }

    public static void main(String[] arguments) throws Exception {
        Map<String, Set<String>> classes = new LinkedHashMap<>();
        for (String argument : arguments) {
            if (argument.equals("--list")) {
                Chosen.listing = true;
                continue;
            }
            for (String line : Files.readAllLines(Path.of(argument))) {
                if (line.isBlank() || line.startsWith("#"))
                    continue;
                int hash = line.indexOf('#');
                Set<String> methods = classes.computeIfAbsent(hash < 0 ? line : line.substring(0, hash), c -> new LinkedHashSet<>());
                if (hash >= 0)
                    methods.add(line);
            }
        }
        for (Map.Entry<String, Set<String>> entry : classes.entrySet()) {
            try {
                run(Class.forName(entry.getKey()), entry.getValue());
            } catch (ClassNotFoundException | LinkageError missing) {
                System.out.printf("failed\t%s\t0.0\t%s%n", entry.getKey(), missing);
            }
        }
        System.out.flush();
        System.exit(0);  // a test that failed may have left threads
    }

    private static void run(Class<?> type, Set<String> tests) {
        Chosen.forget();
        Chosen.wanted = tests;
        List<DiscoverySelector> selectors = new ArrayList<>();
        Set<String> methods = new LinkedHashSet<>();
        tests.forEach(test -> methods.add(test.substring(test.indexOf('#') + 1).replaceAll("\\[.*", "")));
        for (Class<?> c = type; c != null && c != Object.class; c = c.getSuperclass())
            for (Method method : c.getDeclaredMethods())
                if (isTest(method) && (methods.isEmpty() || methods.contains(method.getName())))
                    selectors.add(DiscoverySelectors.selectMethod(type, method));
        PostDiscoveryFilter tested = found -> FilterResult.includedIf(found.getSource()
            .map(source -> !(source instanceof MethodSource method) || isTest(method.getJavaMethod())).orElse(true));
        LauncherFactory.create().execute(LauncherDiscoveryRequestBuilder.request().selectors(selectors).filters(tested)
            .configurationParameter("junit.jupiter.extensions.autodetection.enabled", "true")
            .configurationParameter("junit.jupiter.execution.timeout.testtemplate.method.default", "180 s")
            .configurationParameter("junit.jupiter.execution.timeout.test.method.default", "180 s").build(), new Printer(type));
    }

    private static boolean isTest(Method method) {
        return method.isAnnotationPresent(ClusterTest.class) || method.isAnnotationPresent(ClusterTests.class)
            || method.isAnnotationPresent(ClusterTemplate.class) || !Chosen.listing
            && (method.isAnnotationPresent(Test.class) || method.isAnnotationPresent(ParameterizedTest.class));
    }

    private static final class Printer implements TestExecutionListener {
        private final Class<?> type;
        private final Map<String, Long> begun = new HashMap<>();
        private final Map<String, Integer> seen = new HashMap<>();

        Printer(Class<?> type) {
            this.type = type;
        }

        @Override
        public void executionStarted(TestIdentifier test) {
            begun.put(test.getUniqueId(), System.nanoTime());
            if (test.isTest())
                Inapplicable.take();
        }

        @Override
        public void executionSkipped(TestIdentifier test, String reason) {
            if (!reason.contains(Chosen.PASSED_OVER))
                print("n/a", test, reason);
        }

        @Override
        public void executionFinished(TestIdentifier test, TestExecutionResult result) {
            boolean good = result.getStatus() == TestExecutionResult.Status.SUCCESSFUL;
            if (!test.isTest() && good)
                return;
            String name = name(test);
            if (!Chosen.wanted.isEmpty() && !Chosen.wanted.contains(name) && test.isTest())
                return;
            String inapplicable = Inapplicable.take();
            String reason = result.getThrowable().map(Printer::words).orElse("");
            if (good)
                print("passed", test, "");
            else if (inapplicable != null || result.getStatus() == TestExecutionResult.Status.ABORTED)
                print("n/a", test, inapplicable != null ? inapplicable : reason);
            else
                print("failed", test, reason);
        }

        private final Map<String, String> named = new HashMap<>();

        private String name(TestIdentifier test) {
            String known = Chosen.NAMES.get(test.getUniqueId());
            return known != null ? known : named.computeIfAbsent(test.getUniqueId(), id -> test.getSource()
                .filter(source -> source instanceof MethodSource).map(source -> {
                    String name = type.getName() + "#" + ((MethodSource) source).getMethodName();
                    int count = test.isTest() ? seen.merge(name, 1, Integer::sum) : 1;
                    return count == 1 ? name : name + "[" + count + "]";
                }).orElse(type.getName()));
        }

        private void print(String outcome, TestIdentifier test, String reason) {
            long from = begun.getOrDefault(test.getUniqueId(), System.nanoTime());
            System.out.printf("%s\t%s\t%.1f\t%s%n", outcome, name(test), (System.nanoTime() - from) / 1e9, reason);
            System.out.flush();
        }

        private static String words(Throwable thrown) {
            Throwable root = thrown;
            while (root.getCause() != null && root.getCause() != root)
                root = root.getCause();
            String text = thrown.getClass().getSimpleName() + ": " + thrown.getMessage()
                + (root == thrown ? "" : " / " + root.getClass().getSimpleName() + ": " + root.getMessage());
            text = text.replaceAll("\\s+", " ");
            return text.length() > 4000 ? text.substring(0, 4000) : text;
        }
    }
}
