import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.Arrays;
import java.util.Base64;
import java.util.function.IntConsumer;

/**
 * Runs Kafka's command line tools one after the other in one JVM. A line on stdin: what the tool is to read (base64, or
 * "-"), its class, its arguments, all separated by tabs. A line on stdout: its exit status and what it wrote to stdout and
 * to stderr (base64), separated by tabs.
 */
public final class Tools {
    /** Ends a tool where it would have ended the JVM. Some catch even this and end once more: the first one counts. */
    private static final class Ended extends Error {
        private Ended() {
            super("ended", null, false, false);
        }
    }

    private static Integer status;
    private static String output;

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        ByteArrayOutputStream said = new ByteArrayOutputStream();
        ByteArrayOutputStream complained = new ByteArrayOutputStream();
        takeOver("setExitProcedure", code -> {
            end(code, said, complained);
            throw new Ended();
        });
        takeOver("setShutdownHookAdder", code -> { });
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split("\t", -1);
            said.reset();
            complained.reset();
            status = null;
            System.setOut(new PrintStream(said, true));
            System.setErr(new PrintStream(complained, true));
            byte[] given = words[0].equals("-") ? new byte[0] : Base64.getDecoder().decode(words[0]);
            System.setIn(new ByteArrayInputStream(given));
            end(run(words[1], Arrays.copyOfRange(words, 2, words.length)), said, complained);
            answers.println(status + output);
            answers.flush();
        }
        System.exit(0);
    }

    /** Sets one of the hooks of Kafka's Exit, which has moved to another package with 4.4. */
    private static void takeOver(String setter, IntConsumer instead) throws ReflectiveOperationException {
        String utils = "org.apache.kafka.common.utils.";
        Class<?> exit;
        try {
            exit = Class.forName(utils + "internals.Exit");
        } catch (ClassNotFoundException before) {
            exit = Class.forName(utils + "Exit");
        }
        for (Method method : exit.getMethods()) {
            if (method.getName().equals(setter)) {
                Class<?> hook = method.getParameterTypes()[0];
                method.invoke(null, Proxy.newProxyInstance(hook.getClassLoader(), new Class<?>[] {hook}, (proxy, called, given) -> {
                    instead.accept(given[0] instanceof Integer code ? code : 0);
                    return null;
                }));
                return;
            }
        }
        throw new NoSuchMethodException(setter);
    }

    private static synchronized void end(int code, ByteArrayOutputStream said, ByteArrayOutputStream complained) {
        if (status == null) {
            status = code;
            output = "";
            for (ByteArrayOutputStream written : new ByteArrayOutputStream[] {said, complained}) {
                output += "\t" + Base64.getEncoder().encodeToString(written.toByteArray());
            }
        }
    }

    private static int run(String tool, String[] arguments) {
        try {
            Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
            return 0;
        } catch (InvocationTargetException error) {
            error.getCause().printStackTrace();
            return 1;
        } catch (ReflectiveOperationException error) {
            error.printStackTrace();
            return 2;
        }
    }
}
