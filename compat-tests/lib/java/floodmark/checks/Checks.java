package floodmark.checks;

import java.util.UUID;
import java.util.concurrent.Callable;

/** What a program of a suite in Java tells, a line for each check (lib/script.py), and how it waits. */
public final class Checks {
    public static final long LIMIT_MS = 60_000;

    public interface Work {
        void run() throws Exception;
    }

    private Checks() { }

    public static void report(String name, Work work) {
        try {
            work.run();
            System.out.println("passed " + name);
        } catch (Throwable failure) {
            System.out.println(("failed " + name + " -- " + failure).replaceAll("\\s+", " "));
        }
        System.out.flush();
    }

    public static void same(Object got, Object wanted, String what) {
        if (!got.equals(wanted))
            throw new AssertionError(what + ": " + got + " instead of " + wanted);
    }

    public static void until(String what, Callable<Boolean> reached) throws Exception {
        for (long end = System.currentTimeMillis() + LIMIT_MS; !reached.call(); Thread.sleep(50))
            if (System.currentTimeMillis() > end)
                throw new AssertionError("not within " + LIMIT_MS + " ms: " + what);
    }

    public static String unique(String word) {
        return word + "-" + UUID.randomUUID().toString().substring(0, 8);
    }
}
