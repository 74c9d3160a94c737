import java.util.TreeMap;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.config.ConfigDef;

/** Prints every setting of the Java clients: whose it is, name, type, default; separated by tabs. */
public final class ClientSettings {
    public static void main(String[] arguments) {
        print("admin", AdminClientConfig.configDef());
        print("consumer", ConsumerConfig.configDef());
        print("producer", ProducerConfig.configDef());
    }

    private static void print(String whose, ConfigDef settings) {
        for (ConfigDef.ConfigKey key : new TreeMap<>(settings.configKeys()).values()) {
            System.out.println(String.join("\t", whose, key.name, key.type.name(), defaultOf(key)));
        }
    }

    private static String defaultOf(ConfigDef.ConfigKey key) {
        if (!key.hasDefault()) {
            return "required";
        }
        return key.defaultValue == null ? "none" : ConfigDef.convertToString(key.defaultValue, key.type);
    }
}
