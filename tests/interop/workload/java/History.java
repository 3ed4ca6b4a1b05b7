import java.io.IOException;
import java.io.PrintStream;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.common.TopicPartition;

/** The notes of all clients, as tests/checker/history.py reads them: a line of JSON for each event, as it happens. */
final class History {
    /** A value on its way to a partition; its offset is null as long as it is not acknowledged with one. */
    static final class Send {
        final TopicPartition partition;
        final long value;
        volatile Long offset;
        volatile boolean acknowledged;

        Send(TopicPartition partition, long value) {
            this.partition = partition;
            this.value = value;
        }

        @Override
        public String toString() {
            return "[\"send\", " + key(partition) + ", " + value + ", " + offset + "]";
        }
    }

    private final PrintStream out;
    private final AtomicLong values = new AtomicLong();

    History(Path path) throws IOException {
        this.out = new PrintStream(path.toFile(), "UTF-8");
    }

    long newValue() {
        return values.getAndIncrement();
    }

    synchronized void invoke(int process, String kind, Collection<Send> planned, String group) {
        write("invoke", process, text("kind", kind) + text("group", group) + steps(planned));
    }

    synchronized void commit(int process) {
        write("commit", process, "");
    }

    synchronized void complete(int process, String outcome, Collection<?> steps, String error) {
        write(outcome, process, text("error", error) + steps(steps));
    }

    /** Of one poll. */
    static String polled(ConsumerRecords<byte[], byte[]> records) {
        List<String> read = new ArrayList<>();
        for (ConsumerRecord<byte[], byte[]> one : records) {
            String key = key(new TopicPartition(one.topic(), one.partition()));
            read.add("[" + key + ", " + one.offset() + ", " + new String(one.value()) + "]");
        }
        return "[\"poll\", " + read + ", " + System.nanoTime() + "]";
    }

    /** A position that is null is one that nobody knows. */
    static String reset(Map<TopicPartition, Long> positions) {
        return positions.entrySet().stream()
                .map(one -> key(one.getKey()) + ": " + one.getValue())
                .collect(Collectors.joining(", ", "[\"reset\", {", "}]"));
    }

    private void write(String type, int process, String more) {
        // Linux: the clock of Python's time.monotonic_ns.
        String common = "\"type\": \"" + type + "\", \"process\": " + process + ", \"time\": " + System.nanoTime();
        out.println("{" + common + more + "}");
    }

    private static String key(TopicPartition partition) {
        return "\"" + partition.topic() + "/" + partition.partition() + "\"";
    }

    private static String text(String name, String value) {
        return value == null || value.isEmpty() ? "" : ", \"" + name + "\": \"" + value + "\"";
    }

    private static String steps(Collection<?> steps) {
        return ", \"steps\": " + steps; // A list of Java's reads as one of JSON.
    }
}
