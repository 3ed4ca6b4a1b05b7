import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;

/**
 * Transactions of polls and sends; this one assigns itself all keys, and commits no offsets.
 *
 * <p>One is `fail` only where its producer was told that it is aborted.  Where the producer can't know, another with its
 * transactional id takes over, which ends whatever is open; the outcome stays unknown.
 */
class Transactor extends Worker {
    static final int RECORDS_MAX = 20;

    KafkaConsumer<byte[], byte[]> consumer;
    String group;
    private KafkaProducer<byte[], byte[]> producer;
    private KafkaProducer<byte[], byte[]> zombie; // It left its transaction open.
    private final Map<TopicPartition, Long> positions = new HashMap<>();
    private boolean isCommitRequested;
    private boolean mustRewind = true;

    Transactor(Setting setting, int process) {
        super(setting, process);
        setting.partitions.forEach(one -> positions.put(one, 0L));
    }

    @Override
    void open() {
        consumer = setting.clients.consumer(null, "", false, RECORDS_MAX);
        consumer.assign(setting.partitions);
        mustRewind = true;
    }

    @Override
    void work() throws InterruptedException {
        if (producer == null) {
            takeOver();
        } else if (mustRewind) {
            note("assign", steps -> {
                rewind(steps);
                mustRewind = false;
            });
        } else {
            transaction();
        }
    }

    @Override
    void close() {
        if (producer != null) {
            producer.close(CLOSE);
        }
        consumer.close(CLOSE);
    }

    /** To before what was polled and not committed. */
    void rewind(List<Object> steps) {
        positions.forEach(consumer::seek);
        steps.add(History.reset(positions));
    }

    /** Before the poll of a transaction; the steps are where rebalances are noted. */
    void begin(List<Object> steps) {}

    /** Into the transaction.  False if what was polled is another's by now. */
    boolean sendOffsets(KafkaProducer<byte[], byte[]> producer, Map<TopicPartition, Long> next) {
        return true;
    }

    private void takeOver() throws InterruptedException {
        KafkaProducer<byte[], byte[]> taking = setting.clients.producer("java-transactor-" + process);
        try {
            taking.initTransactions();
        } catch (KafkaException failed) {
            taking.close(CLOSE);
            Thread.sleep(50);
            return;
        }
        producer = taking;
        if (zombie != null) {
            try {
                zombie.commitTransaction(); // It is fenced, or else somebody will read what it has sent.
            } catch (KafkaException | IllegalStateException fenced) {
                // As it should be.
            }
            zombie.close(CLOSE);
            zombie = null;
        }
    }

    private void transaction() throws InterruptedException {
        List<History.Send> planned = plan();
        List<Object> steps = new ArrayList<>();
        Map<TopicPartition, Long> next = new HashMap<>();
        isCommitRequested = false;
        setting.history.invoke(process, "txn", planned, group);
        String[] ended = transact(planned, steps, next);
        steps.addAll(planned);
        setting.history.complete(process, ended[0], steps, ended[1]);
        if (ended[0].equals("ok")) {
            positions.putAll(next);
        } else {
            mustRewind = true;
        }
    }

    /** The outcome, and what went wrong. */
    private String[] transact(List<History.Send> planned, List<Object> steps, Map<TopicPartition, Long> next)
            throws InterruptedException {
        try {
            try {
                producer.beginTransaction();
            } catch (IllegalStateException never) {
                // A send that timed out had the client decide on a new epoch while it aborted: up to 3.9.1 at least it
                // may then say that the abort is done, and never ask for the epoch.
                return given(name(never));
            }
            begin(steps);
            ConsumerRecords<byte[], byte[]> polled = poll(consumer, steps);
            for (ConsumerRecord<byte[], byte[]> one : polled) {
                next.put(new TopicPartition(one.topic(), one.partition()), one.offset() + 1);
            }
            String wrong = send(producer, planned);
            if (!wrong.isEmpty()) {
                return abort(wrong);
            }
            if (!sendOffsets(producer, next)) {
                return abort("rebalanced");
            }
            double chance = random.nextDouble();
            if (chance < 0.03) {
                zombie = producer;
                producer = null;
                return new String[] {"info", "left open"};
            }
            if (chance < 0.15) {
                return abort("on purpose");
            }
            isCommitRequested = true;
            setting.history.commit(process);
            try {
                producer.commitTransaction();
            } catch (TimeoutException again) {
                producer.commitTransaction();
            }
            return new String[] {"ok", ""};
        } catch (TimeoutException failed) {
            return isCommitRequested ? given(name(failed)) : abort(name(failed));
        } catch (KafkaException failed) {
            return abort(name(failed));
        }
    }

    private String[] abort(String why) {
        try {
            producer.abortTransaction();
            return new String[] {"fail", why};
        } catch (KafkaException | IllegalStateException failed) {
            return given(why + " and " + name(failed));
        }
    }

    /** Gives the producer up. */
    private String[] given(String why) {
        producer.close(java.time.Duration.ZERO);
        producer = null;
        return new String[] {"info", why};
    }
}
