package floodmark.its;

import org.opentest4j.TestAbortedException;

/** Remembers why the running test cannot be held against brokers outside this JVM. */
public final class Inapplicable {
    private static volatile String first;

    private Inapplicable() { }

    /** An exception that JUnit takes as "aborted". What counts is the first reason, whatever the test makes of it. */
    public static RuntimeException because(String reason) {
        if (first == null)
            first = reason;
        return new TestAbortedException(reason);
    }

    /** For objects of the broker. An Error, since the loops in which Kafka's tests wait try again after an exception. */
    static Error inside(String member) {
        String reason = "looks inside the broker's JVM: " + member;
        because(reason);
        return new AssertionError(reason);
    }

    /** The reason since the last call, or null. */
    static String take() {
        String reason = first;
        first = null;
        return reason;
    }
}
