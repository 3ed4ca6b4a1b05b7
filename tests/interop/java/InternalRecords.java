import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * The bytes that Apache Kafka's own classes make of records of its internal topics, and of messages.
 *
 * <p>In: lines of "full class name, version, JSON", with tabs between; a version of -1 stands for a key. Out: a line of
 * hexadecimal digits for each.
 */
final class InternalRecords {
    private InternalRecords() {}

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        ObjectMapper mapper = new ObjectMapper();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] fields = line.split("\t", -1);
            byte[] bytes = encoded(fields[0], Short.parseShort(fields[1]), mapper.readTree(fields[2]));
            System.out.println(HexFormat.of().formatHex(bytes));
        }
    }

    private static byte[] encoded(String name, short version, JsonNode json) throws ReflectiveOperationException {
        short schema = version < 0 ? 0 : version;
        ApiMessage message = (ApiMessage) Class.forName(name + "JsonConverter")
                .getMethod("read", JsonNode.class, short.class)
                .invoke(null, json, schema);
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer bytes = ByteBuffer.allocate(Short.BYTES + message.size(cache, schema));
        bytes.putShort(version < 0 ? message.apiKey() : version);
        message.write(new ByteBufferAccessor(bytes), cache, schema);
        return bytes.array();
    }
}
