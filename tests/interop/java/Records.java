import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** A producer and a consumer for each call, on partition 0 of a topic. */
final class Records {
    private final String address;
    private final Duration patience;

    Records(String address, Duration patience) {
        this.address = address;
        this.patience = patience;
    }

    /** Whether it is idempotent is the client's to say where `idempotence` is empty. */
    void produce(
            String topic,
            String codec,
            int recordBytesMax,
            String idempotence,
            List<ProducerRecord<byte[], byte[]>> records)
            throws ExecutionException, InterruptedException {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", address);
        settings.put("compression.type", codec);
        settings.put("acks", "all");
        settings.put("linger.ms", "5");
        settings.put("max.request.size", recordBytesMax);
        settings.put("batch.size", 100_000);
        if (!idempotence.isEmpty()) {
            settings.put("enable.idempotence", idempotence);
        }
        ByteArraySerializer plain = new ByteArraySerializer();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings, plain, plain)) {
            List<Future<?>> sent = new ArrayList<>();
            for (ProducerRecord<byte[], byte[]> record : records) {
                sent.add(producer.send(record));
            }
            for (Future<?> one : sent) {
                one.get();
            }
        }
    }

    List<ConsumerRecord<byte[], byte[]>> consume(
            String topic, String where, long at, String reset, String isolation, int count) {
        List<ConsumerRecord<byte[], byte[]>> found = new ArrayList<>();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(reset, isolation)) {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            seek(consumer, partition, where, at);
            long until = System.nanoTime() + patience.toNanos();
            while (found.size() < count && System.nanoTime() < until) {
                consumer.poll(Duration.ofMillis(500)).forEach(found::add);
            }
        }
        return found.subList(0, Math.min(count, found.size()));
    }

    /** -1 where there is none; -1 and -2 as in ListOffsets, else a time. */
    long offset(String topic, long question) {
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer("none", "read_uncommitted")) {
            if (question == -2) {
                return consumer.beginningOffsets(List.of(partition)).get(partition);
            }
            if (question == -1) {
                return consumer.endOffsets(List.of(partition)).get(partition);
            }
            OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(partition, question)).get(partition);
            return found == null ? -1 : found.offset();
        }
    }

    private KafkaConsumer<byte[], byte[]> consumer(String reset, String isolation) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", address);
        settings.put("auto.offset.reset", reset);
        settings.put("enable.auto.commit", "false");
        settings.put("fetch.max.wait.ms", "100");
        settings.put("isolation.level", isolation);
        ByteArrayDeserializer plain = new ByteArrayDeserializer();
        return new KafkaConsumer<>(settings, plain, plain);
    }

    private static void seek(
            KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition, String where, long at) {
        switch (where) {
            case "beginning" -> consumer.seekToBeginning(List.of(partition));
            case "end" -> consumer.seekToEnd(List.of(partition));
            case "offset" -> consumer.seek(partition, at);
            default -> consumer.seek(partition, consumer.offsetsForTimes(Map.of(partition, at)).get(partition).offset());
        }
    }
}
