import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.function.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;

/** What an application does with its producer, and what it sees. Compiled against the oldest release, run with each. */
public final class Scenario {
    private static final int TRANSACTION_TIMEOUT_MS = 3000; // for a busy machine, too, long enough to begin
    private static final long PATIENCE_MS = 60_000;

    private interface Step {
        void run() throws Exception;
    }

    private final String bootstrap;
    private final String topic;
    private final String id;
    private final Consumer<String> tell;

    private Scenario(String bootstrap, String topic, String id, Consumer<String> tell) {
        this.bootstrap = bootstrap;
        this.topic = topic;
        this.id = id;
        this.tell = tell;
    }

    public static void run(String bootstrap, String topic, String id, String name, Consumer<String> tell)
            throws Exception {
        Scenario scenario = new Scenario(bootstrap, topic, id, tell);
        if (name.equals("read")) {
            scenario.read();
            return;
        }
        if (name.equals("writer") || name.startsWith("member")) {
            String[] parts = id.split(";", 2); // the id, and a file that ends the work
            scenario = new Scenario(bootstrap, topic, parts[0], tell);
            if (name.equals("writer")) {
                scenario.writer(Path.of(parts[1]));
            } else {
                scenario.member(name.replace("member-", ""), Path.of(parts[1]));
            }
            return;
        }
        if (name.equals("fenced")) {
            scenario.fenced();
        } else if (name.equals("copy")) {
            scenario.copy();
        } else if (name.equals("forgotten")) {
            scenario.forgotten();
        } else if (name.equals("burst")) {
            scenario.burst();
        } else {
            scenario.timedOut(name);
        }
        tell.accept("committed=" + String.join(",", scenario.committed()));
    }

    /** A transaction that the broker aborts for its age, then what `name` says, an abort where needed, two new ones. */
    private void timedOut(String name) throws Exception {
        try (KafkaProducer<String, String> producer = producer(TRANSACTION_TIMEOUT_MS)) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, 0, null, "lost")).get();
            if (name.equals("more-offsets")) {
                sendOffsets(producer, 1);
            }
            awaitAbort();
            if (name.equals("produce")) {
                step("send", () -> delivered(producer.send(new ProducerRecord<>(topic, 0, null, "late"))));
            } else if (name.equals("partition")) {
                step("send", () -> delivered(producer.send(new ProducerRecord<>(topic, 1, null, "late"))));
            } else if (name.contains("offsets")) {
                step("offsets", () -> sendOffsets(producer, 2));
            }
            boolean isEnded = !name.equals("abort") && step("commit", producer::commitTransaction);
            if (!isEnded) {
                step("abort", producer::abortTransaction);
            }
            for (String next : List.of("t0", "t1")) {
                boolean isDone = step(next, () -> {
                    producer.beginTransaction();
                    producer.send(new ProducerRecord<>(topic, 0, null, next));
                    producer.commitTransaction();
                });
                if (!isDone) {
                    step("abort-" + next, producer::abortTransaction);
                }
            }
        }
    }

    private void fenced() throws Exception {
        try (KafkaProducer<String, String> first = producer(60_000);
                KafkaProducer<String, String> second = producer(60_000)) {
            first.initTransactions();
            first.beginTransaction();
            first.send(new ProducerRecord<>(topic, 0, null, "zombie")).get();
            step("second", second::initTransactions);
            step("commit", first::commitTransaction);
            step("abort", first::abortTransaction);
            step("t0", () -> {
                second.beginTransaction();
                second.send(new ProducerRecord<>(topic, 0, null, "t0"));
                second.commitTransaction();
            });
        }
    }

    /** Transactions that commit and abort in turn, with offsets, over two partitions. */
    private void copy() throws Exception {
        try (KafkaProducer<String, String> producer = producer(60_000)) {
            producer.initTransactions();
            for (int turn = 0; turn < 6; turn++) {
                String value = "t" + turn;
                boolean isCommit = turn % 2 == 0;
                int offset = turn + 1;
                step(value, () -> {
                    producer.beginTransaction();
                    producer.send(new ProducerRecord<>(topic, 0, "k", value));
                    producer.send(new ProducerRecord<>(topic, 1, "k", value));
                    sendOffsets(producer, offset);
                    producer.flush();
                    if (isCommit) {
                        producer.commitTransaction();
                    } else {
                        producer.abortTransaction();
                    }
                });
            }
        }
        try (KafkaConsumer<String, String> consumer = consumer()) {
            tell.accept("offset=" + groupOffset(consumer).offset());
        }
    }

    /** An idempotent producer in a partition that is emptied, by a crash, say, while it has sent three records. */
    private void forgotten() throws Exception {
        try (KafkaProducer<String, String> producer = idempotentProducer()) {
            for (int number = 0; number < 3; number++) {
                producer.send(new ProducerRecord<>(topic, 0, null, "r" + number)).get();
            }
            tell.accept("ready");
            awaitTopic(topic + "-go");
            for (int number = 3; number < 6; number++) {
                String value = "r" + number;
                step(value, () -> delivered(producer.send(new ProducerRecord<>(topic, 0, null, value))));
            }
        }
    }

    /** Three records one by one, then five at once, each a batch of its own, and one more when these have ended. */
    private void burst() throws Exception {
        Properties settings = idempotent();
        settings.put("batch.size", "0");
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            for (int number = 0; number < 3; number++) {
                producer.send(new ProducerRecord<>(topic, 0, null, "r" + number)).get();
            }
            tell.accept("ready");
            awaitTopic(topic + "-go");
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int number = 3; number < 8; number++) {
                sent.add(producer.send(new ProducerRecord<>(topic, 0, null, "r" + number)));
            }
            for (int number = 3; number < 8; number++) {
                Future<RecordMetadata> one = sent.get(number - 3);
                step("r" + number, () -> delivered(one));
            }
            step("r8", () -> delivered(producer.send(new ProducerRecord<>(topic, 0, null, "r8"))));
        }
    }

    /** Partition 0 from its beginning. The id says how: COUNT;SETTING=VALUE;... Tells each value and when it came. */
    private void read() {
        String[] told = id.split(";");
        int count = Integer.parseInt(told[0]);
        Properties settings = readerSettings();
        settings.put("isolation.level", "read_uncommitted");
        for (int at = 1; at < told.length; at++) {
            String[] pair = told[at].split("=");
            settings.put(pair[0], pair[1]);
        }
        TopicPartition partition = new TopicPartition(topic, 0);
        List<String> seen = new ArrayList<>();
        long began = System.nanoTime();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            consumer.assign(Collections.singleton(partition));
            consumer.seekToBeginning(Collections.singleton(partition));
            consumer.position(partition);
            tell.accept("ready");
            long deadline = System.currentTimeMillis() + PATIENCE_MS;
            boolean isLast = false;
            while (!isLast && seen.size() < count && System.currentTimeMillis() < deadline) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(1000))) {
                    seen.add(record.value() + ":" + System.currentTimeMillis());
                    isLast = record.value().equals("last");
                }
            }
        }
        tell.accept("us=" + (System.nanoTime() - began) / 1000);
        tell.accept("read=" + String.join(",", seen));
    }

    /** Transactions of three records, one after the other, until the file exists. Tells the outcome of each. */
    private void writer(Path end) throws Exception {
        KafkaProducer<String, String> producer = null;
        int[] counts = new int[1];
        while (!Files.exists(end)) {
            String number = Integer.toString(++counts[0]);
            if (producer == null) {
                KafkaProducer<String, String> fresh = producer(60_000);
                if (!step("init" + number, fresh::initTransactions)) {
                    fresh.close();
                    continue;
                }
                producer = fresh;
            }
            KafkaProducer<String, String> current = producer;
            boolean isBegun = step("sent" + number, () -> {
                current.beginTransaction();
                List<Future<RecordMetadata>> sent = new ArrayList<>();
                for (int index = 0; index < 3; index++) {
                    String value = id + "-" + number + "-" + index;
                    sent.add(current.send(new ProducerRecord<>(topic, index % 2, null, value)));
                    Thread.sleep(30);
                }
                for (Future<RecordMetadata> one : sent) {
                    one.get();
                }
            });
            if (isBegun && step("commit" + number, current::commitTransaction)) {
                tell.accept("at" + number + "=" + System.currentTimeMillis());
            } else if (isBegun || !step("abort" + number, current::abortTransaction)) {
                current.close();
                producer = null;
            }
        }
        if (producer != null) {
            producer.close();
        }
    }

    /** A member of the group `id` until the file exists. Tells each value and when it came. */
    private void member(String protocol, Path end) throws Exception {
        Properties settings = readerSettings();
        settings.put("group.id", id);
        settings.put("group.protocol", protocol);
        settings.put("max.poll.records", "100");
        if (protocol.equals("classic")) {
            settings.put("session.timeout.ms", "45000");
        }
        int errors = 0;
        int count = 0;
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            consumer.subscribe(Collections.singleton(topic));
            while (!Files.exists(end)) {
                try {
                    for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                        tell.accept("got" + ++count + "=" + record.value() + ":" + System.currentTimeMillis());
                    }
                    consumer.commitSync();
                } catch (Exception raised) {
                    String reason = raised instanceof IllegalStateException ? ": " + raised.getMessage() : "";
                    tell.accept("error" + ++errors + "=" + names(raised) + reason);
                }
            }
        }
    }

    private void awaitTopic(String name) throws Exception {
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        try (KafkaConsumer<String, String> consumer = consumer()) {
            while (!consumer.listTopics().containsKey(name)) {
                if (System.currentTimeMillis() > deadline) {
                    throw new IllegalStateException("no topic " + name);
                }
                Thread.sleep(50);
            }
        }
    }

    private static void delivered(Future<RecordMetadata> sent) throws Exception {
        sent.get();
    }

    /** True when it raised nothing. */
    private boolean step(String name, Step step) {
        try {
            step.run();
            tell.accept(name + "=ok");
            return true;
        } catch (Exception raised) {
            tell.accept(name + "=" + names(raised));
            return false;
        }
    }

    private static String names(Throwable raised) {
        Throwable error = raised instanceof ExecutionException ? raised.getCause() : raised;
        StringBuilder names = new StringBuilder(error.getClass().getSimpleName());
        for (Throwable cause = error.getCause(); cause != null && cause != cause.getCause(); cause = cause.getCause()) {
            names.append("<").append(cause.getClass().getSimpleName());
        }
        return names.toString();
    }

    /** Until partition 0 has its abort marker: then the last stable offset is behind it. */
    private void awaitAbort() throws Exception {
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<String, String> consumer = consumer()) {
            long deadline = System.currentTimeMillis() + PATIENCE_MS;
            while (consumer.endOffsets(Collections.singleton(partition)).get(partition) < 2) {
                if (System.currentTimeMillis() > deadline) {
                    throw new IllegalStateException("the broker did not abort the transaction");
                }
                Thread.sleep(50);
            }
        }
    }

    private List<String> committed() {
        List<String> values = new ArrayList<>();
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<String, String> consumer = consumer()) {
            consumer.assign(Collections.singleton(partition));
            consumer.seekToBeginning(Collections.singleton(partition));
            long end = consumer.endOffsets(Collections.singleton(partition)).get(partition);
            long deadline = System.currentTimeMillis() + PATIENCE_MS;
            while (consumer.position(partition) < end && System.currentTimeMillis() < deadline) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                    values.add(record.value());
                }
            }
        }
        return values;
    }

    private KafkaConsumer<String, String> consumer() {
        Properties settings = readerSettings();
        settings.put("group.id", topic);
        settings.put("fetch.max.wait.ms", "50");
        return new KafkaConsumer<>(settings);
    }

    private Properties readerSettings() {
        Properties settings = settings();
        settings.put("isolation.level", "read_committed");
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        return settings;
    }

    private KafkaProducer<String, String> producer(int transactionTimeoutMs) {
        Properties settings = settings();
        settings.put("transactional.id", id);
        settings.put("transaction.timeout.ms", Integer.toString(transactionTimeoutMs));
        settings.put("delivery.timeout.ms", "60000");
        settings.put("max.block.ms", "60000");
        settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        return new KafkaProducer<>(settings);
    }

    private KafkaProducer<String, String> idempotentProducer() {
        return new KafkaProducer<>(idempotent());
    }

    private Properties idempotent() {
        Properties settings = settings();
        settings.put("enable.idempotence", "true");
        settings.put("delivery.timeout.ms", "60000");
        settings.put("max.block.ms", "60000");
        settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        return settings;
    }

    private Properties settings() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("retry.backoff.ms", "20");
        return settings;
    }

    /** The signature for several partitions came with 2.4, the other one was gone by 4.0. */
    private OffsetAndMetadata groupOffset(KafkaConsumer<String, String> consumer) throws Exception {
        TopicPartition partition = new TopicPartition(topic, 0);
        try {
            Object found = consumer.getClass()
                    .getMethod("committed", java.util.Set.class)
                    .invoke(consumer, Collections.singleton(partition));
            return (OffsetAndMetadata) ((Map<?, ?>) found).get(partition);
        } catch (NoSuchMethodException old) {
            return consumer.committed(partition);
        }
    }

    /** By group metadata where the release has it (2.5), by the group's name before that. */
    private void sendOffsets(KafkaProducer<String, String> producer, long offset) throws Exception {
        Map<TopicPartition, OffsetAndMetadata> offsets =
                Collections.singletonMap(new TopicPartition(topic, 0), new OffsetAndMetadata(offset));
        try (KafkaConsumer<String, String> consumer = consumer()) {
            Object metadata = consumer.getClass().getMethod("groupMetadata").invoke(consumer);
            Class<?> kind = Class.forName("org.apache.kafka.clients.consumer.ConsumerGroupMetadata");
            call(producer, offsets, metadata, kind);
        } catch (NoSuchMethodException old) {
            call(producer, offsets, topic, String.class);
        }
    }

    private static void call(Object producer, Object offsets, Object group, Class<?> kind) throws Exception {
        try {
            producer.getClass().getMethod("sendOffsetsToTransaction", Map.class, kind).invoke(producer, offsets, group);
        } catch (java.lang.reflect.InvocationTargetException error) {
            throw (Exception) error.getCause();
        }
    }
}
