import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Copies one topic to another in transactions: ADDRESS GROUP PROTOCOL TRANSACTIONAL_ID SOURCE SINK. */
final class Copier {
    private static final Duration POLL = Duration.ofMillis(200);
    private static final long PAUSE_MS = 30; // With the transaction open: there it is killed most often.
    private static final int RECORDS_MAX = 25;
    private static final int CALL_MS_MAX = 20_000;

    public static void main(String[] arguments) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(arguments[0], arguments[1], arguments[2]);
                KafkaProducer<byte[], byte[]> producer = producer(arguments[0], arguments[3])) {
            producer.initTransactions();
            consumer.subscribe(List.of(arguments[4]));
            while (true) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(POLL);
                if (!records.isEmpty()) {
                    copy(consumer, producer, records, arguments[5]);
                }
            }
        } catch (Exception error) {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private static void copy(
            KafkaConsumer<byte[], byte[]> consumer,
            KafkaProducer<byte[], byte[]> producer,
            ConsumerRecords<byte[], byte[]> records,
            String sink)
            throws InterruptedException {
        producer.beginTransaction();
        try {
            Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
            for (ConsumerRecord<byte[], byte[]> record : records) {
                producer.send(new ProducerRecord<>(sink, record.partition(), null, record.value()));
                TopicPartition partition = new TopicPartition(record.topic(), record.partition());
                offsets.put(partition, new OffsetAndMetadata(record.offset() + 1));
            }
            producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
            Thread.sleep(PAUSE_MS);
            producer.commitTransaction();
        } catch (KafkaException error) {
            System.err.println(error);
            producer.abortTransaction(); // If it can't, another takes over.
            rewind(consumer);
        }
    }

    private static void rewind(KafkaConsumer<byte[], byte[]> consumer) {
        consumer.committed(consumer.assignment()).forEach((partition, committed) -> {
            if (committed == null) {
                consumer.seekToBeginning(List.of(partition));
            } else {
                consumer.seek(partition, committed);
            }
        });
    }

    private static KafkaConsumer<byte[], byte[]> consumer(String address, String group, String protocol) {
        Map<String, Object> settings = new HashMap<>(common(address));
        settings.put("group.id", group);
        settings.put("group.protocol", protocol);
        settings.put("isolation.level", "read_committed");
        settings.put("enable.auto.commit", false);
        settings.put("auto.offset.reset", "earliest");
        settings.put("max.poll.records", RECORDS_MAX);
        settings.put("fetch.max.wait.ms", 100);
        if (protocol.equals("classic")) {
            settings.put("session.timeout.ms", 3000);
            settings.put("heartbeat.interval.ms", 500);
        }
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private static KafkaProducer<byte[], byte[]> producer(String address, String transactionalId) {
        Map<String, Object> settings = new HashMap<>(common(address));
        settings.put("transactional.id", transactionalId);
        settings.put("transaction.timeout.ms", 6000);
        settings.put("max.block.ms", CALL_MS_MAX);
        settings.put("request.timeout.ms", 3000);
        settings.put("delivery.timeout.ms", 6000);
        settings.put("linger.ms", 0);
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private static Map<String, Object> common(String address) {
        return Map.of(
                "bootstrap.servers", address,
                "reconnect.backoff.ms", 20,
                "reconnect.backoff.max.ms", 200,
                "retry.backoff.ms", 50,
                "default.api.timeout.ms", CALL_MS_MAX);
    }
}
