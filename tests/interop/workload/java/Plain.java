import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.TopicPartition;

/** The workers without transactions. */
final class Plain {
    private static final int RECORDS_MAX = 50;

    private Plain() {}

    /** An idempotent producer. */
    static final class Sender extends Worker {
        private KafkaProducer<byte[], byte[]> producer;

        Sender(Setting setting, int process) {
            super(setting, process);
        }

        @Override
        void open() {
            producer = setting.clients.producer(null);
        }

        @Override
        void work() throws InterruptedException {
            List<History.Send> planned = plan();
            setting.history.invoke(process, "send", planned, null);
            String wrong = send(producer, planned);
            boolean isAll = planned.stream().allMatch(one -> one.acknowledged);
            setting.history.complete(process, isAll ? "ok" : "info", planned, wrong);
        }

        @Override
        void close() {
            producer.close(CLOSE);
        }
    }

    /** Reads from the beginning, and after a while from there again, or from where it likes. */
    static final class AssignedReader extends Worker {
        private KafkaConsumer<byte[], byte[]> consumer;
        private long until;

        AssignedReader(Setting setting, int process) {
            super(setting, process);
        }

        @Override
        void open() {
            consumer = setting.clients.consumer(null, "", false, RECORDS_MAX);
            consumer.assign(setting.partitions);
        }

        @Override
        void work() throws InterruptedException {
            if (System.nanoTime() > until || until == 0) {
                until = System.nanoTime() + 4_000_000_000L;
                note("assign", this::seek);
            }
            note("poll", steps -> poll(consumer, steps));
        }

        private void seek(List<Object> steps) {
            long offset = random.nextBoolean() ? 0 : random.nextInt(200);
            Map<TopicPartition, Long> positions = new HashMap<>();
            for (TopicPartition one : setting.partitions) {
                consumer.seek(one, offset);
                // Beyond the end, the client goes back to the beginning by itself.
                positions.put(one, offset == 0 ? 0L : null);
            }
            steps.add(History.reset(positions));
        }

        @Override
        void close() {
            consumer.close(CLOSE);
        }
    }

    /** Subscribes, and commits by itself what it has polled; after a while it leaves, and comes back. */
    static final class Member extends Worker {
        private final String protocol;
        private final Moves moves = new Moves();
        private KafkaConsumer<byte[], byte[]> consumer;
        private long until;

        Member(Setting setting, int process, String protocol) {
            super(setting, process);
            this.protocol = protocol;
        }

        @Override
        void open() {
            consumer = setting.clients.consumer("readers-" + protocol, protocol, true, RECORDS_MAX);
            consumer.subscribe(setting.topics(), moves);
            until = System.nanoTime() + 8_000_000_000L + random.nextInt(8000) * 1_000_000L;
        }

        @Override
        void work() throws InterruptedException {
            if (System.nanoTime() > until) {
                close();
                open();
                note("subscribe", steps -> steps.add(unknown(setting.partitions)));
            }
            note("poll", steps -> {
                moves.steps = steps;
                poll(consumer, steps);
            });
        }

        @Override
        void close() {
            consumer.close(CLOSE);
        }
    }
}
