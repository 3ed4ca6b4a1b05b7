import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.kafka.common.TopicPartition;

/** ADDRESS HISTORY SEED NEWEST NAME:PARTITIONS...: all clients until standard input ends, and notes of what they did. */
final class Workload {
    private static final long CLOSE_MS_MAX = 90_000;

    private Workload() {}

    public static void main(String[] of) throws IOException, InterruptedException {
        List<TopicPartition> partitions = new ArrayList<>();
        for (String topic : Arrays.asList(of).subList(4, of.length)) {
            String[] pair = topic.split(":");
            for (int number = 0; number < Integer.parseInt(pair[1]); number++) {
                partitions.add(new TopicPartition(pair[0], number));
            }
        }
        History history = new History(Path.of(of[1]));
        Worker.Setting setting =
                new Worker.Setting(new Settings(of[0]), partitions, history, Long.parseLong(of[2]));
        List<Worker> workers = workers(setting, of[3]);
        workers.forEach(Worker::start);
        System.in.readAllBytes();
        setting.isOver = true;
        Runtime.getRuntime().halt(problems(workers)); // Whatever hangs in a library, this process ends.
    }

    /** `newest` is the newest protocol for groups that the brokers have. */
    private static List<Worker> workers(Worker.Setting setting, String newest) {
        return List.of(
                new Plain.Sender(setting, 0),
                new Plain.Sender(setting, 1),
                new Plain.AssignedReader(setting, 2),
                new Plain.Member(setting, 3, "classic"),
                new Plain.Member(setting, 4, "classic"),
                new Plain.Member(setting, 5, newest),
                new Transactor(setting, 6),
                new Transactor(setting, 7),
                new GroupTransactor(setting, 8, "classic"),
                new GroupTransactor(setting, 9, "classic"),
                new GroupTransactor(setting, 10, newest),
                new GroupTransactor(setting, 11, newest));
    }

    /** How many workers went wrong by themselves. */
    private static int problems(List<Worker> workers) throws InterruptedException {
        long until = System.nanoTime() / 1_000_000 + CLOSE_MS_MAX;
        int count = 0;
        for (Worker worker : workers) {
            worker.join(Math.max(1, until - System.nanoTime() / 1_000_000));
            if (worker.isAlive()) {
                System.err.println(worker.getName() + " hangs: " + Arrays.toString(worker.getStackTrace()));
                count++;
            } else if (worker.error != null) {
                worker.error.printStackTrace();
                count++;
            }
        }
        return count;
    }
}
