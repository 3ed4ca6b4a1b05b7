import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Transactional producers, by name.  Partition 0 is meant. */
final class Transactors {
    /** How the client of a version sends offsets. */
    interface Offsets {
        void send(KafkaProducer<byte[], byte[]> producer, Map<TopicPartition, OffsetAndMetadata> offsets, String group);
    }

    private static final class Transactor {
        final KafkaProducer<byte[], byte[]> producer;
        final String group;
        final TopicPartition source;

        Transactor(KafkaProducer<byte[], byte[]> producer, String group, String source) {
            this.producer = producer;
            this.group = group;
            this.source = new TopicPartition(source, 0);
        }
    }

    private final String address;
    private final Offsets offsets;
    private final Map<String, Transactor> transactors = new HashMap<>();

    Transactors(String address, Offsets offsets) {
        this.address = address;
        this.offsets = offsets;
    }

    void open(String name, String transactionalId, String timeoutMs, String group, String source) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", address);
        settings.put("transactional.id", transactionalId);
        settings.put("transaction.timeout.ms", timeoutMs);
        ByteArraySerializer plain = new ByteArraySerializer();
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings, plain, plain);
        producer.initTransactions();
        transactors.put(name, new Transactor(producer, group, source));
    }

    void begin(String name) {
        producer(name).beginTransaction();
    }

    void send(String name, String topic, List<String> values) throws ExecutionException, InterruptedException {
        List<Future<?>> sent = new ArrayList<>();
        for (String value : values) {
            sent.add(producer(name).send(new ProducerRecord<>(topic, 0, null, Wire.bytes(value))));
        }
        producer(name).flush();
        for (Future<?> one : sent) {
            one.get();
        }
    }

    void sendOffset(String name, long offset) {
        Transactor one = transactors.get(name);
        offsets.send(one.producer, Map.of(one.source, new OffsetAndMetadata(offset)), one.group);
    }

    void commit(String name) {
        producer(name).commitTransaction();
    }

    void abort(String name) {
        producer(name).abortTransaction();
    }

    void close(String name) {
        transactors.remove(name).producer.close();
    }

    private KafkaProducer<byte[], byte[]> producer(String name) {
        return transactors.get(name).producer;
    }
}
