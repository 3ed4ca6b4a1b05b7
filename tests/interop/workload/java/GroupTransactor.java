import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.TopicPartition;

/** A member of a group, whose offsets its transactions commit; after a while it leaves, and comes back. */
final class GroupTransactor extends Transactor {
    private final String protocol;
    private final Worker.Moves moves = new Worker.Moves();
    private long until;

    GroupTransactor(Setting setting, int process, String protocol) {
        super(setting, process);
        this.protocol = protocol;
        this.group = "transactors-" + protocol;
    }

    /** A new consumer begins where the group has committed. */
    @Override
    void open() {
        consumer = setting.clients.consumer(group, protocol, false, RECORDS_MAX);
        consumer.subscribe(setting.topics(), moves);
        until = System.nanoTime() + 8_000_000_000L + random.nextInt(8000) * 1_000_000L;
    }

    @Override
    void work() throws InterruptedException {
        if (System.nanoTime() > until) {
            consumer.close(CLOSE);
            open();
            note("subscribe", steps -> steps.add(unknown(setting.partitions)));
        }
        super.work();
    }

    /** To where the group has committed; what is assigned later will begin there by itself. */
    @Override
    void rewind(List<Object> steps) {
        Map<TopicPartition, Long> positions = new HashMap<>();
        consumer.committed(consumer.assignment()).forEach((partition, at) -> {
            consumer.seek(partition, at == null ? 0 : at.offset());
            positions.put(partition, at == null ? 0 : at.offset());
        });
        steps.add(History.reset(positions));
    }

    @Override
    void begin(List<Object> steps) {
        moves.steps = steps;
        moves.isRebalanced = false;
    }

    @Override
    boolean sendOffsets(KafkaProducer<byte[], byte[]> producer, Map<TopicPartition, Long> next) {
        if (moves.isRebalanced) {
            return false;
        }
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        next.forEach((partition, offset) -> offsets.put(partition, new OffsetAndMetadata(offset)));
        if (!offsets.isEmpty()) {
            producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
        }
        return true;
    }
}
