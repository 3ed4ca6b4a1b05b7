import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractResponse;

/**
 * The answers of Apache Kafka's own classes to requests that are refused as a whole.
 *
 * <p>In: lines of "API key, version, error code, the request's body in hexadecimal digits", with tabs between. Out: a line
 * with the answer's body for each.
 */
final class Refusals {
    private Refusals() {}

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] fields = line.split("\t", -1);
            short version = Short.parseShort(fields[1]);
            ByteBuffer body = ByteBuffer.wrap(HexFormat.of().parseHex(fields[3]));
            AbstractRequest request =
                    AbstractRequest.parseRequest(ApiKeys.forId(Short.parseShort(fields[0])), version, body).request;
            AbstractResponse refused =
                    request.getErrorResponse(0, Errors.forCode(Short.parseShort(fields[2])).exception());
            System.out.println(HexFormat.of().formatHex(encoded(refused.data(), version)));
        }
    }

    private static byte[] encoded(ApiMessage message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer bytes = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(bytes), cache, version);
        return bytes.array();
    }
}
