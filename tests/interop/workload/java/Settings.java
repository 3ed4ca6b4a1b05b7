import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** How the clients are set: as impatient as those of ../settings.py. */
final class Settings {
    static final int CALL_MS_MAX = 5000;

    private final String address;

    Settings(String address) {
        this.address = address;
    }

    KafkaProducer<byte[], byte[]> producer(String transactionalId) {
        Properties settings = common();
        settings.putAll(Map.of(
                "enable.idempotence", "true",
                "acks", "all",
                "linger.ms", "0",
                "delivery.timeout.ms", "5000",
                "request.timeout.ms", "3000",
                "max.block.ms", "" + CALL_MS_MAX));
        if (transactionalId != null) {
            settings.put("transactional.id", transactionalId);
            settings.put("transaction.timeout.ms", "6000");
        }
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    /** Of no group if it is null. */
    KafkaConsumer<byte[], byte[]> consumer(String group, String protocol, boolean commitsItself, int recordsMax) {
        Properties settings = common();
        settings.putAll(Map.of(
                "isolation.level", "read_committed",
                "auto.offset.reset", "earliest",
                "fetch.max.wait.ms", "100",
                "default.api.timeout.ms", "" + CALL_MS_MAX,
                "request.timeout.ms", "3000",
                "max.poll.records", "" + recordsMax,
                "enable.auto.commit", "" + commitsItself,
                "auto.commit.interval.ms", "300"));
        if (group != null) {
            settings.put("group.id", group);
        }
        if ("consumer".equals(protocol)) {
            settings.put("group.protocol", protocol);
        } else {
            settings.put("session.timeout.ms", "3000");
            settings.put("heartbeat.interval.ms", "500");
        }
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private Properties common() {
        Properties settings = new Properties();
        settings.putAll(Map.of(
                "bootstrap.servers", address,
                "reconnect.backoff.ms", "20",
                "reconnect.backoff.max.ms", "200",
                "retry.backoff.ms", "50",
                "metadata.max.age.ms", "5000"));
        return settings;
    }
}
