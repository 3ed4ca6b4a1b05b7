import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/** Numbered batches and transactions of each kind, in partition 0 of a topic; the last one is left open. */
final class Writers {
    private Writers() {}

    private static KafkaProducer<String, String> producer(String address, String transactionalId) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", address);
        if (transactionalId != null) {
            settings.put("transactional.id", transactionalId);
        }
        KafkaProducer<String, String> made =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        if (transactionalId != null) {
            made.initTransactions();
        }
        return made;
    }

    private static void send(KafkaProducer<String, String> producer, String topic, String word, int count) {
        for (int number = 0; number < count; number++) {
            producer.send(new ProducerRecord<>(topic, 0, null, word + " " + number));
            if (number % 2 == 0) {
                producer.flush();
            }
        }
        producer.flush();
    }

    public static void main(String[] arguments) {
        String address = arguments[0];
        String topic = arguments[1];
        send(producer(address, null), topic, "numbered", 9);
        KafkaProducer<String, String> first = producer(address, "first");
        KafkaProducer<String, String> second = producer(address, "second");
        for (int round = 0; round < 4; round++) {
            first.beginTransaction();
            second.beginTransaction();
            send(first, topic, "first " + round, 3);
            send(second, topic, "second " + round, 2);
            if (round % 2 == 0) {
                first.abortTransaction();
                second.commitTransaction();
            } else {
                second.abortTransaction();
                first.commitTransaction();
            }
        }
        KafkaProducer<String, String> open = producer(address, "open");
        open.beginTransaction();
        send(open, topic, "open", 3);
        Runtime.getRuntime().halt(0);
    }
}
