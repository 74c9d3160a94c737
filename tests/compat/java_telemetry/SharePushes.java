import java.io.File;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;

/**
 * A share consumer that pushes its metrics, as it does by default. Arguments: brokers, topic, records, file. Its group is
 * named after the topic. It polls until the file exists. A line on stdout has the words "> read" RECORDS.
 */
public final class SharePushes {
    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        int records = Integer.parseInt(arguments[2]);
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", arguments[0], "client.id", "java-" + topic, "group.id", topic,
            "key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer",
            "value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        try (KafkaShareConsumer<String, String> consumer = new KafkaShareConsumer<>(settings)) {
            consumer.subscribe(List.of(topic));
            File stop = new File(arguments[3]);
            int read = 0;
            while (read < records || !stop.exists()) {
                read += consumer.poll(Duration.ofMillis(20)).count();
            }
            System.out.println("> read " + read);
        }
    }
}
