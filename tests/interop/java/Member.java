import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * A member of a group: ADDRESS SUBSCRIPTION KEY=VALUE ...  It tells what it is assigned and what it reads, commits after
 * each poll, and leaves when its input ends.  A subscription that begins with ^ is a pattern.
 */
final class Member {
    private static final Duration POLL = Duration.ofMillis(100);

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("key.deserializer", StringDeserializer.class.getName());
        settings.put("value.deserializer", StringDeserializer.class.getName());
        for (int place = 2; place < arguments.length; place++) {
            String[] setting = arguments[place].split("=", 2);
            settings.put(setting[0], setting[1]);
        }
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            subscribe(consumer, arguments[1]);
            while (!input.ready()) {
                ConsumerRecords<String, String> records = consumer.poll(POLL);
                for (ConsumerRecord<String, String> record : records) {
                    System.out.println("read " + record.topic() + "-" + record.partition() + " " + record.value());
                }
                if (!records.isEmpty()) {
                    commit(consumer);
                }
            }
        }
        System.out.println("closed");
    }

    private static void subscribe(KafkaConsumer<String, String> consumer, String subscription) {
        if (subscription.startsWith("^")) {
            consumer.subscribe(new SubscriptionPattern(subscription), new Listener());
        } else {
            consumer.subscribe(List.of(subscription.split(",")), new Listener());
        }
    }

    /** What can't be committed now is read again by whoever has the partition then. */
    private static void commit(KafkaConsumer<String, String> consumer) {
        try {
            consumer.commitSync(Duration.ofSeconds(10));
        } catch (RuntimeException error) {
            System.out.println("uncommitted " + error);
        }
    }

    private static final class Listener implements ConsumerRebalanceListener {
        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            report("assigned", partitions);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            report("revoked", partitions);
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            report("revoked", partitions);
        }

        private static void report(String what, Collection<TopicPartition> partitions) {
            String listed = partitions.stream().map(TopicPartition::toString).collect(Collectors.joining(" "));
            System.out.println(what + " " + listed);
        }
    }
}
