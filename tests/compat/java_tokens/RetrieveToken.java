import java.util.HashMap;
import java.util.List;
import java.util.Map;
import javax.security.auth.login.AppConfigurationEntry;
import javax.security.auth.login.AppConfigurationEntry.LoginModuleControlFlag;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.SaslConfigs;
import org.apache.kafka.common.security.oauthbearer.ClientCredentialsJwtRetriever;

/** Asks an identity provider for a token, as Java's clients do. Arguments: settings, NAME=VALUE. */
public final class RetrieveToken {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        for (String argument : arguments) {
            String[] parts = argument.split("=", 2);
            settings.put(parts[0], parts[1]);
        }
        ConfigDef known = new ConfigDef();
        SaslConfigs.addClientSaslSupport(known);
        AppConfigurationEntry line = new AppConfigurationEntry(
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
            LoginModuleControlFlag.REQUIRED, Map.of());
        try (ClientCredentialsJwtRetriever retriever = new ClientCredentialsJwtRetriever()) {
            retriever.configure(known.parse(settings), "OAUTHBEARER", List.of(line));
            System.out.println("> " + retriever.retrieve());
        }
    }
}
