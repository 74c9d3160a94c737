import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.TreeSet;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ShareConsumer;
import org.apache.kafka.clients.producer.Producer;

/** Prints every method of the Java clients' interfaces, and the options of each that takes some. */
public final class ClientMethods {
    public static void main(String[] arguments) {
        TreeSet<String> found = new TreeSet<>();
        for (Class<?> client : new Class<?>[] {Producer.class, Consumer.class, ShareConsumer.class, Admin.class}) {
            for (Method method : client.getMethods()) {
                String name = client.getSimpleName() + "." + method.getName();
                found.add(name);
                for (Class<?> parameter : method.getParameterTypes()) {
                    if (parameter.getSimpleName().endsWith("Options")) {
                        addOptions(name, parameter, found);
                    }
                }
            }
        }
        found.forEach(System.out::println);
    }

    /** The methods of options that set a value: they return options. */
    private static void addOptions(String name, Class<?> options, TreeSet<String> found) {
        for (Method method : options.getMethods()) {
            boolean sets = method.getParameterCount() == 1 && !Modifier.isStatic(method.getModifiers())
                    && method.getReturnType().getSimpleName().endsWith("Options");
            if (sets) {
                found.add(name + "(" + method.getName() + ")");
            }
        }
    }
}
