import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.header.internals.RecordHeaders;

/** Records as lines of text: fields between tabs, bytes in base64, null as "~". */
final class Wire {
    private static final String NULL = "~";

    private Wire() {}

    static String text(byte[] bytes) {
        return bytes == null ? NULL : Base64.getEncoder().encodeToString(bytes);
    }

    static String text(String words) {
        return text(words.getBytes(StandardCharsets.UTF_8));
    }

    static byte[] bytes(String text) {
        return text.equals(NULL) ? null : Base64.getDecoder().decode(text);
    }

    /** timestamp, key, value, headers. */
    static ProducerRecord<byte[], byte[]> record(String topic, String line) {
        String[] fields = line.split("\t", -1);
        Headers headers = headers(fields[3]);
        return new ProducerRecord<>(topic, 0, Long.valueOf(fields[0]), bytes(fields[1]), bytes(fields[2]), headers);
    }

    /** offset, timestamp, key, value, headers. */
    static String line(ConsumerRecord<byte[], byte[]> record) {
        String place = record.offset() + "\t" + record.timestamp();
        return place + "\t" + text(record.key()) + "\t" + text(record.value()) + "\t" + line(record.headers());
    }

    private static Headers headers(String text) {
        RecordHeaders headers = new RecordHeaders();
        for (String one : text.isEmpty() ? new String[0] : text.split(",")) {
            String[] pair = one.split(":", -1);
            headers.add(new String(bytes(pair[0]), StandardCharsets.UTF_8), bytes(pair[1]));
        }
        return headers;
    }

    private static String line(Headers headers) {
        List<String> pairs = new ArrayList<>();
        for (Header header : headers) {
            pairs.add(text(header.key()) + ":" + text(header.value()));
        }
        return String.join(",", pairs);
    }
}
