import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Set;
import javax.security.auth.callback.Callback;
import javax.security.auth.callback.UnsupportedCallbackException;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallback;

/**
 * Checks the form and time of tokens at a broker as Google's Managed Kafka does: a header that names Google, claims with
 * the option `subject` of the login module, and an access token. Each accepted token is a line on standard output.
 */
public class GoogleTokens implements AuthenticateCallbackHandler {
    private record Token(String value, String principalName, Long startTimeMs, long lifetimeMs)
            implements OAuthBearerToken {
        public Set<String> scope() {
            return Set.of("kafka");
        }
    }

    private Map<String, ?> options;

    @Override
    public void configure(Map<String, ?> configs, String mechanism, List<AppConfigurationEntry> entries) {
        options = entries.get(0).getOptions();
    }

    @Override
    public void close() {
    }

    @Override
    public void handle(Callback[] callbacks) throws UnsupportedCallbackException {
        for (Callback callback : callbacks) {
            if (!(callback instanceof OAuthBearerValidatorCallback asked)) {
                throw new UnsupportedCallbackException(callback);
            }
            try {
                asked.token(checked(asked.tokenValue()));
            } catch (Exception error) {
                asked.error(error.toString(), null, null);
            }
        }
    }

    private Token checked(String value) {
        require(!value.contains("="), "padding");
        String[] parts = value.split("\\.");
        require(parts.length == 3, "the number of parts");
        require(text(parts[0]).contains("\"GOOG_OAUTH2_TOKEN\""), "the header " + text(parts[0]));
        String claims = text(parts[1]);
        require(claims.contains("\"iss\": \"Google\""), "the issuer in " + claims);
        require(claims.contains("\"sub\": \"" + options.get("subject") + "\""), "the subject in " + claims);
        long begin = number(claims, "iat");
        long end = number(claims, "exp");
        long now = System.currentTimeMillis() / 1000;
        require(begin <= now && now < end, "the time in " + claims);
        require(text(parts[2]).split("\\.").length == 2, "the access token");
        System.out.println("accepted Google token " + text(parts[2]).hashCode() + " of " + options.get("subject"));
        return new Token(value, (String) options.get("principal"), begin * 1000, end * 1000);
    }

    private static long number(String claims, String name) {
        return Long.parseLong(claims.split("\"" + name + "\": ")[1].split("[,.}]")[0]);
    }

    private static String text(String part) {
        return new String(Base64.getUrlDecoder().decode(part), StandardCharsets.UTF_8);
    }

    private static void require(boolean holds, String what) {
        if (!holds) {
            throw new IllegalArgumentException("wrong: " + what);
        }
    }
}
