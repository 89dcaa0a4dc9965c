package floodmark.its;

import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.Type;

import org.junit.jupiter.api.extension.ConditionEvaluationResult;
import org.junit.jupiter.api.extension.ExtensionContext;

import java.util.HashMap;
import java.util.Map;
import java.util.Set;

/**
 * Which invocations of a test run, and how they are called: {@code package.Class#method}, and {@code package.Class#method[2]} and so
 * on for more of them. What differs in the cluster's type alone runs once: with a controller of its own where there are several
 * brokers (tests stop brokers there, and the controller must go on), and combined where there is one.
 */
public final class Chosen {
    static final String PASSED_OVER = "its: not chosen";
    /** Empty for all. */
    static Set<String> wanted = Set.of();
    /** Our name of each of JUnit's invocations. */
    static final Map<String, String> NAMES = new HashMap<>();
    private static final Map<String, Integer> SEEN = new HashMap<>();
    /** Names and shapes are printed, and nothing runs. */
    static boolean listing;

    private Chosen() { }

    public static ConditionEvaluationResult condition(ExtensionContext context, Type type, ClusterConfig config) {
        Type usual = config.numBrokers() > 1 ? Type.KRAFT : Type.CO_KRAFT;
        if (config.clusterTypes().size() > 1 && type != usual)
            return ConditionEvaluationResult.disabled(PASSED_OVER);
        String name = NAMES.computeIfAbsent(context.getUniqueId(), unknown -> {
            String method = context.getRequiredTestClass().getName() + "#" + context.getRequiredTestMethod().getName();
            int count = SEEN.merge(method, 1, Integer::sum);
            return count == 1 ? method : method + "[" + count + "]";
        });
        if (listing) {
            System.out.println(name + "\t" + config.numBrokers() + "\t" + config.numControllers());
            return ConditionEvaluationResult.disabled(PASSED_OVER);
        }
        return wanted.isEmpty() || wanted.contains(name)
            ? ConditionEvaluationResult.enabled("chosen") : ConditionEvaluationResult.disabled(PASSED_OVER);
    }

    static void forget() {
        NAMES.clear();
        SEEN.clear();
    }
}
