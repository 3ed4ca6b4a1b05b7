import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Members of groups, by name, each a consumer in a thread of its own.  What they read they commit at once. */
final class Members {
    private static final Duration POLL = Duration.ofMillis(100);
    private static final String PACKAGE = "org.apache.kafka.clients.consumer.";
    private static final Map<String, String> ASSIGNORS =
            Map.of("range", PACKAGE + "RangeAssignor", "cooperative-sticky", PACKAGE + "CooperativeStickyAssignor");

    private final String address;
    private final Map<String, Member> members = new HashMap<>();

    Members(String address) {
        this.address = address;
    }

    /** Name, group, topic, way, instance, metadata, and the milliseconds of heartbeat, session and fetch. */
    void join(String[] of) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", address);
        settings.put("client.id", of[0]);
        settings.put("group.id", of[1]);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("fetch.max.wait.ms", of[8]);
        if (!of[4].isEmpty()) {
            settings.put("group.instance.id", of[4]);
        }
        if (of[3].equals("consumer")) {
            settings.put("group.protocol", "consumer");
        } else {
            settings.put("partition.assignment.strategy", ASSIGNORS.get(of[3]));
            settings.put("heartbeat.interval.ms", of[6]);
            settings.put("session.timeout.ms", of[7]);
        }
        ByteArrayDeserializer plain = new ByteArrayDeserializer();
        Member member = new Member(new KafkaConsumer<>(settings, plain, plain), of[2], of[5]);
        members.put(of[0], member);
        member.start();
    }

    /** Partition, offset and value of all that it has read, but for the first so many. */
    List<String> places(String name, int known) {
        return members.get(name).places(known);
    }

    /** The same, at its end. */
    List<String> leave(String name, int known) throws InterruptedException {
        Member member = members.remove(name);
        member.leave();
        return member.places(known);
    }

    private static final class Member extends Thread {
        private final KafkaConsumer<byte[], byte[]> consumer;
        private final String topic;
        private final String metadata;
        private final List<String> places = new ArrayList<>();
        private volatile boolean isRunning = true;
        private volatile RuntimeException failure;

        Member(KafkaConsumer<byte[], byte[]> consumer, String topic, String metadata) {
            this.consumer = consumer;
            this.topic = topic;
            this.metadata = metadata;
            setDaemon(true);
        }

        @Override
        public void run() {
            try (consumer) {
                consumer.subscribe(List.of(topic));
                while (isRunning) {
                    commit(read());
                }
            } catch (RuntimeException failed) {
                failure = failed;
            }
        }

        private Map<TopicPartition, OffsetAndMetadata> read() {
            Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
            for (ConsumerRecord<byte[], byte[]> one : consumer.poll(POLL)) {
                synchronized (places) {
                    places.add(one.partition() + "\t" + one.offset() + "\t" + Wire.text(one.value()));
                }
                TopicPartition partition = new TopicPartition(one.topic(), one.partition());
                positions.put(partition, new OffsetAndMetadata(one.offset() + 1, metadata));
            }
            return positions;
        }

        private void commit(Map<TopicPartition, OffsetAndMetadata> positions) {
            if (positions.isEmpty()) {
                return;
            }
            try {
                consumer.commitSync(positions);
            } catch (CommitFailedException | RebalanceInProgressException moved) {
                // Whoever has the partitions now reads again what is not committed.
            }
        }

        List<String> places(int known) {
            if (failure != null) {
                throw failure;
            }
            synchronized (places) {
                return new ArrayList<>(places.subList(known, places.size()));
            }
        }

        void leave() throws InterruptedException {
            isRunning = false;
            join();
        }
    }
}
