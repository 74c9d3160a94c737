import java.util.Map;
import org.apache.kafka.common.errors.PolicyViolationException;
import org.apache.kafka.server.policy.CreateTopicPolicy;

/** A policy for new topics that refuses internal ones: an operator's mistake, which the controller obeys. */
public class NoInternalTopics implements CreateTopicPolicy {
    @Override
    public void configure(Map<String, ?> configs) {}

    @Override
    public void validate(RequestMetadata topic) {
        if (topic.topic().startsWith("__")) {
            throw new PolicyViolationException("names with __ are not allowed");
        }
    }

    @Override
    public void close() {}
}
