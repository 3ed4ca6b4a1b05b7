import java.io.IOException;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * One transaction after the other, with the producer's default settings: for a while, then "ready" is printed and a
 * line waited for, and again for a while; at the end how many were before, and how many nanoseconds each took since.
 */
final class Transactions {
    private final KafkaProducer<byte[], byte[]> producer;
    private final String topic;
    private final int partitions;
    private final int records;
    private final byte[] value;
    private final String group; // Empty for transactions without offsets.
    private final StringBuilder took = new StringBuilder();
    private long position;

    private Transactions(String[] arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("transactional.id", arguments[1]);
        producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        topic = arguments[2];
        partitions = Integer.parseInt(arguments[3]);
        records = Integer.parseInt(arguments[4]);
        value = new byte[Integer.parseInt(arguments[5])];
        group = arguments[6];
    }

    public static void main(String[] arguments) throws IOException {
        Transactions transactions = new Transactions(arguments);
        transactions.producer.initTransactions();
        int warm = transactions.repeat(Double.parseDouble(arguments[7]));
        System.out.println("ready");
        System.in.read();
        transactions.took.setLength(0);
        transactions.repeat(Double.parseDouble(arguments[8]));
        System.out.println(warm + transactions.took.toString());
        System.exit(0);
    }

    private int repeat(double seconds) {
        long now = System.nanoTime();
        long end = now + (long) (seconds * 1e9);
        int count = 0;
        do {
            transact();
            long before = now;
            now = System.nanoTime();
            took.append(' ').append(now - before);
            count++;
        } while (now < end);
        return count;
    }

    @SuppressWarnings("removal") // Of a group that nobody joined there is no other metadata.
    private void transact() {
        producer.beginTransaction();
        for (int record = 0; record < records; record++) {
            producer.send(new ProducerRecord<>(topic, record % partitions, null, value));
        }
        if (!group.isEmpty()) {
            position += records;
            producer.sendOffsetsToTransaction(
                    Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(position)),
                    new ConsumerGroupMetadata(group));
        }
        producer.flush(); // Now and then a commit that does not wait for it is sent before the records.
        producer.commitTransaction();
    }
}
