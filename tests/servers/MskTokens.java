import java.io.FileInputStream;
import java.io.InputStream;
import java.net.URI;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.time.Instant;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.Base64;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Collectors;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import javax.security.auth.callback.Callback;
import javax.security.auth.callback.UnsupportedCallbackException;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallback;

/**
 * Checks tokens of AWS_MSK_IAM at a broker: their form, their time, and their signature (AWS Signature Version 4).
 *
 * Options of the login module: `region`, `principal`, and `keys`, a file of lines ACCESS_KEY=SECRET. Each accepted token
 * is a line on standard output.
 */
public class MskTokens implements AuthenticateCallbackHandler {
    private static final String ALGORITHM = "AWS4-HMAC-SHA256";
    private static final DateTimeFormatter TIME = DateTimeFormatter.ofPattern("yyyyMMdd'T'HHmmss'Z'");
    private static final Set<String> FIELDS = Set.of("Action", "X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date",
            "X-Amz-Expires", "X-Amz-SignedHeaders", "X-Amz-Signature", "User-Agent");

    private record Token(String value, String principalName, Long startTimeMs, long lifetimeMs)
            implements OAuthBearerToken {
        public Set<String> scope() {
            return Set.of();
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

    private Token checked(String value) throws Exception {
        require(!value.contains("="), "padding");
        URI url = URI.create(new String(Base64.getUrlDecoder().decode(value), StandardCharsets.UTF_8));
        String region = (String) options.get("region");
        String host = "kafka." + region + ".amazonaws.com";
        require(("https://" + host + "/").equals(url.toString().split("\\?")[0]), "the address " + url.getHost());
        TreeMap<String, String> fields = new TreeMap<>();
        for (String field : url.getRawQuery().split("&")) {
            String[] pair = field.split("=", 2);
            require(fields.put(pair[0], pair[1]) == null, "two fields " + pair[0]);
        }
        String canonical = fields.entrySet().stream()
                .filter(field -> !Set.of("X-Amz-Signature", "User-Agent").contains(field.getKey()))
                .map(field -> field.getKey() + "=" + field.getValue()).collect(Collectors.joining("&"));
        String signature = fields.get("X-Amz-Signature");
        Set<String> names = new java.util.HashSet<>(fields.keySet());
        names.remove("X-Amz-Security-Token");
        require(names.equals(FIELDS), "the fields " + names);
        require(fields.get("Action").equals("kafka-cluster%3AConnect"), "the action");
        require(fields.get("X-Amz-Algorithm").equals(ALGORITHM), "the algorithm");
        require(fields.get("X-Amz-SignedHeaders").equals("host"), "the signed headers");

        String date = fields.get("X-Amz-Date");
        Instant begin = LocalDateTime.parse(date, TIME).toInstant(ZoneOffset.UTC);
        long seconds = Long.parseLong(fields.get("X-Amz-Expires"));
        require(seconds <= 900, "a life of " + seconds + " seconds");
        require(begin.isBefore(Instant.now()) && Instant.now().isBefore(begin.plusSeconds(seconds)), "the time " + date);

        String credential = URLDecoder.decode(fields.get("X-Amz-Credential"), StandardCharsets.UTF_8);
        String key = credential.split("/")[0];
        String scope = date.substring(0, 8) + "/" + region + "/kafka-cluster/aws4_request";
        require(credential.equals(key + "/" + scope), "the scope of " + credential);
        require((fields.containsKey("X-Amz-Security-Token")) == key.startsWith("ASIA"), "the session token");
        Properties keys = new Properties();
        try (InputStream file = new FileInputStream((String) options.get("keys"))) {
            keys.load(file);
        }
        require(keys.containsKey(key), "the access key " + key);
        byte[] signing = ("AWS4" + keys.getProperty(key)).getBytes(StandardCharsets.UTF_8);
        for (String part : scope.split("/")) {
            signing = signed(signing, part);
        }
        String request = "GET\n/\n" + canonical + "\nhost:" + host + "\n\nhost\n" + digest("");
        String expected = hex(signed(signing, ALGORITHM + "\n" + date + "\n" + scope + "\n" + digest(request)));
        require(expected.equals(signature), "the signature");
        System.out.println("accepted token " + signature + " of " + key);
        long end = begin.plusSeconds(seconds).toEpochMilli();
        return new Token(value, (String) options.get("principal"), begin.toEpochMilli(), end);
    }

    private static void require(boolean holds, String what) {
        if (!holds) {
            throw new IllegalArgumentException("wrong: " + what);
        }
    }

    private static byte[] signed(byte[] key, String text) throws Exception {
        Mac mac = Mac.getInstance("HmacSHA256");
        mac.init(new SecretKeySpec(key, "HmacSHA256"));
        return mac.doFinal(text.getBytes(StandardCharsets.UTF_8));
    }

    private static String digest(String text) throws Exception {
        return hex(MessageDigest.getInstance("SHA-256").digest(text.getBytes(StandardCharsets.UTF_8)));
    }

    private static String hex(byte[] bytes) {
        return HexFormat.of().formatHex(bytes);
    }
}
