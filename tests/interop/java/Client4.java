import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.TopicPartition;

/** The Java client of 4.x: offsets through the administrator, of all kinds. */
final class Client4 implements Dialogue.Version {
    public static void main(String[] arguments) throws IOException, InterruptedException {
        Dialogue.hold(arguments, new Client4());
    }

    @Override
    public TopicDescription describe(AdminClient admin, String topic) throws ExecutionException, InterruptedException {
        return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
    }

    @Override
    @SuppressWarnings("removal") // That is how a producer without a consumer names the group.
    public void send(
            KafkaProducer<byte[], byte[]> producer, Map<TopicPartition, OffsetAndMetadata> offsets, String group) {
        producer.sendOffsetsToTransaction(offsets, new ConsumerGroupMetadata(group));
    }

    @Override
    public long offset(AdminClient admin, Records records, String topic, long question)
            throws ExecutionException, InterruptedException {
        TopicPartition partition = new TopicPartition(topic, 0);
        return admin.listOffsets(Map.of(partition, spec(question))).all().get().get(partition).offset();
    }

    private static OffsetSpec spec(long question) {
        if (question == -1) {
            return OffsetSpec.latest();
        }
        if (question == -2) {
            return OffsetSpec.earliest();
        }
        return question == -3 ? OffsetSpec.maxTimestamp() : OffsetSpec.forTimestamp(question);
    }
}
