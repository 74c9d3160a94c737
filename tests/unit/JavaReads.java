import java.io.ByteArrayInputStream;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Properties;

import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.security.JaasContext;

/** Reads each line of a file, KIND BASE64: prints the names and values in order of names, or "refused". */
public class JavaReads {
    public static void main(String[] arguments) throws Exception {
        StringBuilder out = new StringBuilder();
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            String[] words = line.split(" ", 2);
            out.append(answer(words[0], Base64.getDecoder().decode(words[1]))).append('\n');
        }
        System.out.print(out);
    }

    private static String answer(String kind, byte[] data) throws Exception {
        Map<?, ?> found;
        try {
            found = kind.equals("jaas") ? options(new String(data, StandardCharsets.UTF_8)) : properties(kind, data);
        } catch (IllegalArgumentException refused) {
            return "refused";
        }
        List<String> pairs = new ArrayList<>();
        for (Map.Entry<?, ?> each : found.entrySet()) {
            pairs.add(text(each.getKey()) + ":" + text(each.getValue()));
        }
        pairs.sort(null);
        return String.join(" ", pairs);
    }

    private static Map<?, ?> properties(String kind, byte[] data) throws Exception {
        Properties properties = new Properties();
        if (kind.equals("bytes")) {
            properties.load(new ByteArrayInputStream(data));
        } else {
            properties.load(new InputStreamReader(new ByteArrayInputStream(data), StandardCharsets.UTF_8));
        }
        return properties;
    }

    private static Map<?, ?> options(String line) {
        var entry = JaasContext.loadClientContext(Map.of("sasl.jaas.config", new Password(line)))
            .configurationEntries().get(0);
        var found = new java.util.HashMap<String, Object>(entry.getOptions());
        found.put("the module", entry.getLoginModuleName());
        return found;
    }

    private static String text(Object text) {
        if (text == null) return "none";
        String given = (String) text;
        ByteBuffer units = ByteBuffer.allocate(2 * given.length());  // getBytes() would replace half a character
        units.asCharBuffer().put(given);
        return Base64.getEncoder().encodeToString(units.array());
    }
}
