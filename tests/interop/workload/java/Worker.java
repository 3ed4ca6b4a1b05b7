import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.function.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;

/** A client that does one thing after another until it is told to stop; one process of the history. */
abstract class Worker extends Thread {
    static final int SENDS_MAX = 4;
    static final Duration POLL = Duration.ofMillis(200);
    static final Duration CLOSE = Duration.ofSeconds(5);

    /** What all workers have in common. */
    static final class Setting {
        final Settings clients;
        final List<TopicPartition> partitions;
        final History history;
        final long seed;
        volatile boolean isOver;

        Setting(Settings clients, List<TopicPartition> partitions, History history, long seed) {
            this.clients = clients;
            this.partitions = partitions;
            this.history = history;
            this.seed = seed;
        }

        Collection<String> topics() {
            return partitions.stream().map(TopicPartition::topic).distinct().toList();
        }
    }

    final Setting setting;
    final int process;
    final Random random;
    Throwable error;

    Worker(Setting setting, int process) {
        super("worker " + process);
        this.setting = setting;
        this.process = process;
        this.random = new Random(1000 * setting.seed + process);
        setDaemon(true);
    }

    abstract void open();

    /** One operation or a few. */
    abstract void work() throws Exception;

    abstract void close();

    @Override
    public void run() {
        try {
            open();
            while (!setting.isOver) {
                work();
            }
            close();
        } catch (Throwable failed) {
            error = failed;
        }
    }

    /** New values, for keys by chance. */
    List<History.Send> plan() {
        List<History.Send> planned = new ArrayList<>();
        for (int count = 1 + random.nextInt(SENDS_MAX); count > 0; count--) {
            TopicPartition partition = setting.partitions.get(random.nextInt(setting.partitions.size()));
            planned.add(new History.Send(partition, setting.history.newValue()));
        }
        return planned;
    }

    /** Sends them and waits for what comes of it; returns what went wrong, or nothing. */
    static String send(KafkaProducer<byte[], byte[]> producer, List<History.Send> planned) throws InterruptedException {
        Map<History.Send, Future<RecordMetadata>> sent = new HashMap<>();
        String wrong = "";
        for (History.Send one : planned) {
            byte[] value = Long.toString(one.value).getBytes();
            try {
                sent.put(one, producer.send(new ProducerRecord<>(
                        one.partition.topic(), one.partition.partition(), null, value)));
            } catch (KafkaException failed) {
                wrong = name(failed);
            }
        }
        producer.flush();
        for (Map.Entry<History.Send, Future<RecordMetadata>> one : sent.entrySet()) {
            try {
                RecordMetadata answer = one.getValue().get();
                one.getKey().offset = answer.hasOffset() ? answer.offset() : null;
                one.getKey().acknowledged = true;
            } catch (ExecutionException failed) {
                wrong = name(failed.getCause());
            }
        }
        return wrong;
    }

    /** One operation that needs no commit; what it did adds its steps. */
    void note(String kind, Consumer<List<Object>> did) throws InterruptedException {
        List<Object> steps = new ArrayList<>();
        setting.history.invoke(process, kind, List.of(), null);
        String wrong = "";
        try {
            did.accept(steps);
        } catch (KafkaException failed) {
            wrong = name(failed);
        }
        setting.history.complete(process, wrong.isEmpty() ? "ok" : "info", steps, wrong);
        if (!wrong.isEmpty()) {
            Thread.sleep(50);
        }
    }

    static ConsumerRecords<byte[], byte[]> poll(KafkaConsumer<byte[], byte[]> consumer, List<Object> steps) {
        ConsumerRecords<byte[], byte[]> found = consumer.poll(POLL);
        if (!found.isEmpty()) {
            steps.add(History.polled(found));
        }
        return found;
    }

    static String unknown(Collection<TopicPartition> partitions) {
        Map<TopicPartition, Long> positions = new HashMap<>();
        partitions.forEach(one -> positions.put(one, null));
        return History.reset(positions);
    }

    static String name(Throwable failed) {
        return failed.getClass().getSimpleName();
    }

    /** Notes where a rebalance came between. */
    static final class Moves implements ConsumerRebalanceListener {
        List<Object> steps = new ArrayList<>(); // Of the operation that goes on.
        boolean isRebalanced; // Something was taken away.

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            steps.add(unknown(partitions));
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            steps.add(unknown(partitions));
            isRebalanced = true;
        }
    }
}
