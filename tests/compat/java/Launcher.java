import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/**
 * Runs Scenario with several releases of kafka-clients in one JVM. A line on stdin: KEY RELEASE BOOTSTRAP TOPIC ID SCENARIO;
 * lines on stdout: KEY STEP=OUTCOME, and KEY end. Arguments: the folder of jars, the folder of compiled classes.
 */
public final class Launcher {
    public static void main(String[] arguments) throws Exception {
        Path jars = Path.of(arguments[0]);
        Path classes = Path.of(arguments[1]);
        Map<String, ClassLoader> loaders = new HashMap<>();
        ExecutorService threads = Executors.newFixedThreadPool(24);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            ClassLoader loader = loaders.get(words[1]);
            if (loader == null) {
                loader = loader(jars, classes, words[1]);
                loaders.put(words[1], loader);
            }
            ClassLoader own = loader;
            threads.submit(() -> run(own, words));
        }
        threads.shutdown();
        threads.awaitTermination(10, TimeUnit.MINUTES);
        System.exit(0);
    }

    private static ClassLoader loader(Path jars, Path classes, String release) throws Exception {
        List<URL> found = new ArrayList<>();
        for (String name : List.of("kafka-clients-" + release, "slf4j-api-1.7.36", "slf4j-nop-1.7.36")) {
            found.add(jars.resolve(name + ".jar").toUri().toURL());
        }
        found.add(classes.toUri().toURL());
        return new URLClassLoader(found.toArray(new URL[0]), ClassLoader.getPlatformClassLoader());
    }

    private static void run(ClassLoader loader, String[] words) {
        Consumer<String> tell = text -> {
            synchronized (System.out) {
                System.out.println(words[0] + " " + text);
            }
        };
        Thread.currentThread().setContextClassLoader(loader);
        try {
            loader.loadClass("Scenario")
                    .getMethod("run", String.class, String.class, String.class, String.class, Consumer.class)
                    .invoke(null, words[2], words[3], words[4], words[5], tell);
        } catch (Throwable error) {
            Throwable cause = error.getCause() == null ? error : error.getCause();
            tell.accept("broken=" + cause);
            cause.printStackTrace();
        }
        tell.accept("end");
    }
}
