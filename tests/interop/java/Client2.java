import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.TopicPartition;

/** The Java client of 2.x: offsets through the consumer. */
final class Client2 implements Dialogue.Version {
    public static void main(String[] arguments) throws IOException, InterruptedException {
        Dialogue.hold(arguments, new Client2());
    }

    @Override
    public TopicDescription describe(AdminClient admin, String topic) throws ExecutionException, InterruptedException {
        return admin.describeTopics(List.of(topic)).all().get().get(topic);
    }

    @Override
    public void send(
            KafkaProducer<byte[], byte[]> producer, Map<TopicPartition, OffsetAndMetadata> offsets, String group) {
        producer.sendOffsetsToTransaction(offsets, group);
    }

    @Override
    public long offset(AdminClient admin, Records records, String topic, long question) {
        return records.offset(topic, question);
    }
}
