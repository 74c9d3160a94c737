import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsReporter;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.telemetry.ClientTelemetry;
import org.apache.kafka.server.telemetry.ClientTelemetryPayload;
import org.apache.kafka.server.telemetry.ClientTelemetryReceiver;

/**
 * Makes Kafka's broker serve client telemetry (KIP-714), which it does not without such a plugin. Each push becomes a
 * file in the folder of the property telemetry.folder: NUMBER INSTANCE-ID, and "last" after the last push of a client.
 */
public final class TelemetryReceiver implements MetricsReporter, ClientTelemetry, ClientTelemetryReceiver {
    private Path folder;
    private int pushes;

    @Override
    public ClientTelemetryReceiver clientReceiver() {
        return this;
    }

    @Override
    public synchronized void exportMetrics(AuthorizableRequestContext context, ClientTelemetryPayload payload) {
        String last = payload.isTerminating() ? " last" : "";
        String name = String.format("%06d %s%s", pushes++, payload.clientInstanceId(), last);
        ByteBuffer data = payload.data();
        byte[] bytes = new byte[data.remaining()];
        data.get(bytes);
        try {
            Path written = Files.write(folder.resolve("." + name), bytes);
            Files.move(written, folder.resolve(name), StandardCopyOption.ATOMIC_MOVE);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    @Override
    public void init(List<KafkaMetric> metrics) {
    }

    @Override
    public void metricChange(KafkaMetric metric) {
    }

    @Override
    public void metricRemoval(KafkaMetric metric) {
    }

    @Override
    public void close() {
    }

    @Override
    public void configure(Map<String, ?> settings) {
        folder = Path.of((String) settings.get("telemetry.folder"));
    }
}
