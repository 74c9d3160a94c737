import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;

/**
 * Consumers that poll until they are told to stop. Lines on stdin: "start NAME TOPICS [KEY=VALUE]..." (TOPICS: names with commas,
 * or ~PATTERN for an expression that the broker looks up) and "stop NAME". Lines on stdout: "NAME owns TOPIC-0,TOPIC-1",
 * "NAME read COUNT", "NAME closed", "NAME failed ERROR".
 */
public final class Groups {
    private static final Map<String, Thread> THREADS = new ConcurrentHashMap<>();
    private static final Map<String, KafkaConsumer<byte[], byte[]>> CONSUMERS = new ConcurrentHashMap<>();

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            if (words[0].equals("start")) {
                start(words);
            } else {
                CONSUMERS.get(words[1]).wakeup();
            }
        }
        System.exit(0);
    }

    private static void start(String[] words) {
        Properties properties = new Properties();
        properties.put("key.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        properties.put("value.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        properties.put("auto.offset.reset", "earliest");
        for (int i = 3; i < words.length; i++) {
            String[] pair = words[i].split("=", 2);
            properties.put(pair[0], pair[1]);
        }
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(properties);
        CONSUMERS.put(words[1], consumer);
        Thread thread = new Thread(() -> poll(words[1], words[2], consumer));
        THREADS.put(words[1], thread);
        thread.start();
    }

    private static void poll(String name, String topics, KafkaConsumer<byte[], byte[]> consumer) {
        try {
            if (topics.startsWith("~")) {
                consumer.subscribe(new SubscriptionPattern(topics.substring(1)));
            } else {
                consumer.subscribe(List.of(topics.split(",")));
            }
            String before = "";
            int read = 0;
            while (true) {
                int got = consumer.poll(Duration.ofMillis(100)).count();
                if (got > 0) {
                    read += got;
                    tell(name + " read " + read);
                }
                TreeSet<String> owned = new TreeSet<>();
                for (TopicPartition partition : consumer.assignment()) {
                    owned.add(partition.toString());
                }
                String now = String.join(",", owned);
                if (!now.equals(before)) {
                    before = now;
                    tell(name + " owns " + now);
                }
            }
        } catch (WakeupException stop) {
            consumer.close();
            tell(name + " closed");
        } catch (Throwable error) {
            tell(name + " failed " + error);
        }
    }

    private static void tell(String text) {
        synchronized (System.out) {
            System.out.println("> " + text);
        }
    }
}
