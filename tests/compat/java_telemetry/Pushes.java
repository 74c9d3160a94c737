import java.io.File;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * A producer and a consumer that push their metrics, as they do by default. Arguments: brokers, topic, records, file. The
 * consumer polls until the file exists. Each line on stdout that begins with ">" has words: "id" CLIENT INSTANCE-ID,
 * "read" RECORDS, "closed" CLIENT MS.
 */
public final class Pushes {
    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        int records = Integer.parseInt(arguments[2]);
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", arguments[0], "client.id", "java-" + topic, "group.id", topic,
            "auto.offset.reset", "earliest",
            "key.serializer", "org.apache.kafka.common.serialization.StringSerializer",
            "value.serializer", "org.apache.kafka.common.serialization.StringSerializer",
            "key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer",
            "value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        KafkaProducer<String, String> producer = new KafkaProducer<>(settings);
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings);
        consumer.subscribe(List.of(topic));
        int read = 0;
        File stop = new File(arguments[3]);
        for (int sent = 0; sent < records || read < records || !stop.exists();) {
            if (sent < records) {
                producer.send(new ProducerRecord<>(topic, "value " + sent++)).get();
            }
            read += consumer.poll(Duration.ofMillis(20)).count();
        }
        System.out.println("> read " + read);
        System.out.println("> id producer " + producer.clientInstanceId(Duration.ofSeconds(5)));
        System.out.println("> id consumer " + consumer.clientInstanceId(Duration.ofSeconds(5)));
        close("producer", producer);
        close("consumer", consumer);
    }

    private static void close(String name, AutoCloseable client) throws Exception {
        long began = System.nanoTime();
        client.close();
        System.out.println("> closed " + name + " " + (System.nanoTime() - began) / 1_000_000);
    }
}
