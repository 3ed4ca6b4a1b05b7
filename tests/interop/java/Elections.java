// Reads partitions, one a line, and prints whom the controller of Apache Kafka elects, by each of its five ways.
//     replicas | targets | ISR | brokers that live | those of them that stop        numbers with commas between
// Prints for each way: leader, its epoch, ISR; - where it elects nobody.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import kafka.api.LeaderAndIsr;
import kafka.cluster.Broker;
import kafka.controller.ControllerContext;
import kafka.controller.Election;
import kafka.controller.ElectionResult;
import kafka.controller.ReplicaAssignment;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.metadata.LeaderRecoveryState;
import scala.Option;
import scala.Tuple2;
import scala.Tuple3;
import scala.jdk.javaapi.CollectionConverters;

public class Elections {
    static final TopicPartition PARTITION = new TopicPartition("t", 0);
    static final int LEADER = 1;
    static final int EPOCH = 7;

    static List<Object> numbers(String text) {
        List<Object> found = new ArrayList<>();
        for (String word : text.split(",")) {
            if (!word.isEmpty()) {
                found.add(Integer.valueOf(word));
            }
        }
        return found;
    }

    static scala.collection.immutable.List<Object> list(List<Object> numbers) {
        return CollectionConverters.asScala(numbers).toList();
    }

    static <T> scala.collection.immutable.List<T> alone(T one) {
        return CollectionConverters.asScala(List.of(one)).toList();
    }

    static String lineOf(scala.collection.Seq<ElectionResult> results) {
        Option<LeaderAndIsr> found = results.head().leaderAndIsr();
        if (found.isEmpty()) {
            return "-";
        }
        List<String> isr = new ArrayList<>();
        CollectionConverters.asJava(found.get().isr()).forEach(each -> isr.add(String.valueOf(each)));
        return found.get().leader() + " " + found.get().leaderEpoch() + " " + String.join(",", isr);
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder out = new StringBuilder();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] fields = line.split("\\|", -1);
            List<Object> replicas = numbers(fields[0]);
            List<Object> targets = numbers(fields[1]);
            ControllerContext context = new ControllerContext();
            var live = new scala.collection.mutable.HashMap<Broker, Object>();
            for (Object id : numbers(fields[3])) {
                live.put(new Broker((Integer) id, "h", 9092, new ListenerName("L"), SecurityProtocol.PLAINTEXT), 1L);
            }
            context.setLiveBrokers(live);
            numbers(fields[4]).forEach(id -> context.shuttingDownBrokerIds().add(id));
            context.updatePartitionFullReplicaAssignment(PARTITION, ReplicaAssignment.apply(list(replicas)));
            LeaderAndIsr now =
                LeaderAndIsr.apply(LEADER, EPOCH, list(numbers(fields[2])), LeaderRecoveryState.RECOVERED, 0);
            List<String> found = new ArrayList<>();
            for (boolean unclean : new boolean[] {false, true}) {
                found.add(lineOf(Election.leaderForOffline(
                    context, true, alone(new Tuple3<>(PARTITION, Option.apply(now), (Object) unclean)))));
            }
            found.add(lineOf(Election.leaderForPreferredReplica(context, alone(new Tuple2<>(PARTITION, now)))));
            found.add(lineOf(Election.leaderForControlledShutdown(context, alone(new Tuple2<>(PARTITION, now)))));
            List<Object> added = new ArrayList<>(targets);
            added.removeAll(replicas);
            List<Object> removed = new ArrayList<>(replicas);
            removed.removeAll(targets);
            List<Object> all = new ArrayList<>(targets);
            all.addAll(removed);
            context.updatePartitionFullReplicaAssignment(
                PARTITION, ReplicaAssignment.apply(list(all), list(added), list(removed)));
            found.add(lineOf(Election.leaderForReassign(context, alone(new Tuple2<>(PARTITION, now)))));
            out.append(String.join("|", found)).append('\n');
        }
        System.out.print(out);
    }
}
