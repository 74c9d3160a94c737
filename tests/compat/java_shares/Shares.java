import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.ShareGroupDescription;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.GroupIdNotFoundException;

/** What Java's share consumer and administrator see of share groups: one line "> step outcome" each. */
public class Shares {
    private static String bootstrap;
    private static String suffix;
    private static Admin admin;

    /** The name of a topic and of its group, which no other run uses. */
    private static String named(String what) {
        return what + suffix;
    }

    private static Properties properties() {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        properties.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        properties.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        properties.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        return properties;
    }

    private static void say(String step, Object outcome) {
        System.out.println("> " + step + " " + outcome);
    }

    private static KafkaShareConsumer<String, String> consumer(String group, String topic, String... more) {
        Properties properties = properties();
        properties.put("group.id", group);
        for (int i = 0; i < more.length; i += 2) {
            properties.put(more[i], more[i + 1]);
        }
        KafkaShareConsumer<String, String> consumer = new KafkaShareConsumer<>(properties);
        consumer.subscribe(Set.of(topic));
        return consumer;
    }

    private static void configure(String group, String... pairs) throws Exception {
        List<AlterConfigOp> operations = new ArrayList<>();
        for (int i = 0; i < pairs.length; i += 2) {
            operations.add(new AlterConfigOp(new ConfigEntry(pairs[i], pairs[i + 1]), AlterConfigOp.OpType.SET));
        }
        admin.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.GROUP, group), operations)).all().get();
    }

    private static void topic(String name, int partitions) throws Exception {
        admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1))).all().get();
    }

    private static void produce(String topic, int first, int count) throws Exception {
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(properties())) {
            for (int i = first; i < first + count; i++) {
                producer.send(new ProducerRecord<>(topic, null, null, "v" + i));
            }
        }
    }

    private static List<ConsumerRecord<String, String>> poll(KafkaShareConsumer<String, String> consumer, int wanted) {
        List<ConsumerRecord<String, String>> found = new ArrayList<>();
        long end = System.currentTimeMillis() + 20_000;
        while (found.size() < wanted && System.currentTimeMillis() < end) {
            consumer.poll(Duration.ofMillis(500)).forEach(found::add);
        }
        return found;
    }

    private static String values(Collection<ConsumerRecord<String, String>> records) {
        Map<Integer, Integer> counts = new TreeMap<>();
        for (ConsumerRecord<String, String> record : records) {
            counts.merge(Integer.parseInt(record.value().substring(1)), 1, Integer::sum);
        }
        return counts.toString();
    }

    private static void implicit() throws Exception {
        topic(named("implicit"), 3);
        configure(named("implicit"), "share.auto.offset.reset", "earliest");
        produce(named("implicit"), 0, 20);
        try (KafkaShareConsumer<String, String> consumer = consumer(named("implicit"), named("implicit"))) {
            List<ConsumerRecord<String, String>> found = poll(consumer, 20);
            say("implicit", values(found));
            say("first-deliveries", found.stream().allMatch(r -> r.deliveryCount().orElse((short) -1) == 1));
            consumer.commitSync();
        }
        try (KafkaShareConsumer<String, String> consumer = consumer(named("implicit"), named("implicit"))) {
            produce(named("implicit"), 20, 1);
            say("only-the-new-one", values(poll(consumer, 1)));
        }
    }

    private static void explicit() throws Exception {
        topic(named("explicit"), 1);
        configure(named("explicit"), "share.auto.offset.reset", "earliest");
        produce(named("explicit"), 0, 6);
        try (KafkaShareConsumer<String, String> consumer = consumer(named("explicit"), named("explicit"), "share.acknowledgement.mode", "explicit")) {
            for (ConsumerRecord<String, String> record : poll(consumer, 6)) {
                int number = Integer.parseInt(record.value().substring(1));
                AcknowledgeType[] types = {AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT};
                consumer.acknowledge(record, types[number % 3]);
            }
            Map<?, ?> results = consumer.commitSync();
            say("said", results.values().stream().allMatch(each -> each.toString().contains("empty")));
            List<ConsumerRecord<String, String>> again = poll(consumer, 2);
            say("released-come-again", values(again));
            say("second-deliveries", again.stream().allMatch(r -> r.deliveryCount().orElse((short) -1) == 2));
            again.forEach(record -> consumer.acknowledge(record, AcknowledgeType.ACCEPT));
            consumer.commitSync();
            produce(named("explicit"), 6, 1);
            List<ConsumerRecord<String, String>> left = poll(consumer, 1);
            say("only-the-new-one-left", values(left));
            left.forEach(record -> consumer.acknowledge(record, AcknowledgeType.ACCEPT));
            consumer.commitSync();
        }
    }

    private static void exhausted() throws Exception {
        topic(named("exhausted"), 1);
        configure(named("exhausted"), "share.auto.offset.reset", "earliest");
        produce(named("exhausted"), 0, 1);
        int deliveries = 0;
        try (KafkaShareConsumer<String, String> consumer = consumer(named("exhausted"), named("exhausted"), "share.acknowledgement.mode", "explicit")) {
            boolean another = false;
            while (!another) {
                List<ConsumerRecord<String, String>> found = poll(consumer, 1);
                if (found.isEmpty()) {
                    break;
                }
                for (ConsumerRecord<String, String> record : found) {
                    consumer.acknowledge(record, AcknowledgeType.RELEASE);
                    another |= record.value().equals("v1");
                    deliveries += record.value().equals("v0") ? 1 : 0;
                }
                consumer.commitSync();
                if (deliveries == 5 && !another) { // were the first to come once more, it would come before this one
                    produce(named("exhausted"), 1, 1);
                }
            }
            say("then-another", another);
        }
        say("deliveries", deliveries);
    }

    /** How many members of the group have partitions. */
    private static long assigned(String group) throws Exception {
        try {
            return admin.describeShareGroups(List.of(group)).describedGroups().get(group).get().members().stream()
                .filter(member -> !member.assignment().topicPartitions().isEmpty()).count();
        } catch (ExecutionException error) {
            if (error.getCause() instanceof GroupIdNotFoundException) { // nobody has joined it yet
                return 0;
            }
            throw error;
        }
    }

    private static void shared() throws Exception {
        topic(named("shared"), 1);
        configure(named("shared"), "share.auto.offset.reset", "earliest");
        try (KafkaShareConsumer<String, String> one = consumer(named("shared"), named("shared"), "max.poll.records", "10");
                KafkaShareConsumer<String, String> two = consumer(named("shared"), named("shared"), "max.poll.records", "10")) {
            long patience = System.currentTimeMillis() + 20_000;
            while (assigned(named("shared")) < 2 && System.currentTimeMillis() < patience) {
                one.poll(Duration.ofMillis(100));
                two.poll(Duration.ofMillis(100));
            }
            say("both-assigned", assigned(named("shared")));
            List<ConsumerRecord<String, String>> found = new ArrayList<>();
            for (int round = 0; round < 10; round++) {
                produce(named("shared"), 10 * round, 10);
                one.poll(Duration.ofMillis(100)).forEach(found::add);
                two.poll(Duration.ofMillis(100)).forEach(found::add);
            }
            long end = System.currentTimeMillis() + 20_000;
            while (found.size() < 100 && System.currentTimeMillis() < end) {
                one.poll(Duration.ofMillis(300)).forEach(found::add);
                two.poll(Duration.ofMillis(300)).forEach(found::add);
            }
            Set<String> distinct = new TreeSet<>();
            found.forEach(record -> distinct.add(record.value()));
            say("shared", found.size() + "/" + distinct.size());
        }
    }

    private static void abandoned() throws Exception {
        topic(named("abandoned"), 1);
        configure(named("abandoned"), "share.auto.offset.reset", "earliest");
        produce(named("abandoned"), 0, 4);
        KafkaShareConsumer<String, String> first = consumer(named("abandoned"), named("abandoned"), "share.acknowledgement.mode", "explicit");
        say("taken", values(poll(first, 4)));
        first.close();
        try (KafkaShareConsumer<String, String> second = consumer(named("abandoned"), named("abandoned"))) {
            List<ConsumerRecord<String, String>> found = poll(second, 4);
            say("taken-over", values(found));
            say("taken-over-count", found.get(0).deliveryCount().orElse((short) -1));
        }
    }

    private static void committed() throws Exception {
        topic(named("committed"), 1);
        configure(named("committed"), "share.auto.offset.reset", "earliest", "share.isolation.level", "read_committed");
        Properties properties = properties();
        properties.put("transactional.id", named("shares"));
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(properties)) {
            producer.initTransactions();
            for (int round = 0; round < 4; round++) {
                producer.beginTransaction();
                for (int i = 0; i < 3; i++) {
                    producer.send(new ProducerRecord<>(named("committed"), "v" + (3 * round + i)));
                }
                if (round % 2 == 0) {
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
        }
        try (KafkaShareConsumer<String, String> consumer = consumer(named("committed"), named("committed"))) {
            say("committed", values(poll(consumer, 6)));
        }
    }

    private static String failure(org.apache.kafka.common.KafkaFuture<?> future) throws Exception {
        try {
            return String.valueOf(future.get());
        } catch (ExecutionException error) {
            return error.getCause().getClass().getSimpleName();
        }
    }

    private static void administered() throws Exception {
        TopicPartition partition = new TopicPartition(named("explicit"), 0);
        Set<String> listed = new TreeSet<>();
        admin.listGroups(ListGroupsOptions.forShareGroups()).all().get().forEach(each ->
            listed.add(each.groupId() + ":" + each.groupState().orElseThrow() + ":" + each.type().orElseThrow()));
        say("listed", listed);
        ShareGroupDescription described = admin.describeShareGroups(List.of(named("explicit"))).describedGroups().get(named("explicit")).get();
        say("described", described.groupState() + " " + described.members().size());
        say("described-missing", failure(admin.describeShareGroups(List.of("none")).describedGroups().get("none")));
        var offsets = admin.listShareGroupOffsets(Map.of(named("explicit"), new ListShareGroupOffsetsSpec()))
            .partitionsToOffsetInfo(named("explicit")).get();
        say("lag", offsets.get(partition).lag().orElse(-1L));
        say("altered", failure(admin.alterShareGroupOffsets(named("explicit"), Map.of(partition, 2L)).all()));
        try (KafkaShareConsumer<String, String> consumer = consumer(named("explicit"), named("explicit"))) {
            say("after-alter", values(poll(consumer, 5)));
            say("alter-while-used", failure(admin.alterShareGroupOffsets(named("explicit"), Map.of(partition, 2L)).all()));
            say("delete-while-used", failure(admin.deleteShareGroups(List.of(named("explicit"))).all()));
            described = admin.describeShareGroups(List.of(named("explicit"))).describedGroups().get(named("explicit")).get();
            say("described-in-use", described.groupState() + " " + described.members().size());
        }
        say("offsets-deleted", failure(admin.deleteShareGroupOffsets(named("explicit"), Set.of(named("explicit"))).all()));
        say("offsets-deleted-again", failure(admin.deleteShareGroupOffsets(named("explicit"), Set.of(named("explicit"))).all()));
        say("group-deleted", failure(admin.deleteShareGroups(List.of(named("explicit"))).all()));
        say("group-deleted-again", failure(admin.deleteShareGroups(List.of(named("explicit"))).all()));
        say("wrong-reset", wrong("share.auto.offset.reset", "nowhere"));
        say("wrong-lock", wrong("share.record.lock.duration.ms", "1"));
    }

    private static String wrong(String key, String value) throws Exception {
        try {
            configure(named("wrong"), key, value);
            return "taken";
        } catch (ExecutionException error) {
            return error.getCause().getClass().getSimpleName();
        }
    }

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        suffix = arguments[1];
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        try (Admin made = Admin.create(properties)) {
            admin = made;
            implicit();
            explicit();
            exhausted();
            shared();
            abandoned();
            committed();
            administered();
        }
    }
}
