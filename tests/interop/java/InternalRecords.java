import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.MessageUtil;

/**
 * The bytes that Apache Kafka's own classes make of records of its internal topics.
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
        return version < 0
                ? MessageUtil.toCoordinatorTypePrefixedBytes(message)
                : MessageUtil.toVersionPrefixedBytes(version, message);
    }
}
