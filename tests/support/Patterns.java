import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Pattern;
import java.util.regex.PatternSyntaxException;

/** The first line of stdin has names, each further line a pattern: prints the names that it matches as a whole, "|", and
    those in which it is found; or "!" if it is none. */
public class Patterns {
    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String[] names = input.readLine().split(" ");
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            try {
                Pattern pattern = Pattern.compile(line);
                List<String> matched = new ArrayList<>();
                List<String> found = new ArrayList<>();
                for (String name : names) {
                    if (pattern.matcher(name).matches())
                        matched.add(name);
                    if (pattern.matcher(name).find())
                        found.add(name);
                }
                System.out.println(String.join(" ", matched) + "|" + String.join(" ", found));
            } catch (PatternSyntaxException refused) {
                System.out.println("!");
            }
        }
    }
}
