// Prints where Apache Kafka puts replicas: brokers | their racks | replicas of each | start | first partition | who has them.
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.kafka.admin.AdminUtils;
import org.apache.kafka.admin.BrokerMetadata;

public class Assignments {
    static final int PARTITIONS = 8;
    static final int REPLICAS_MAX = 4;
    static final String[] CLUSTERS = {
        "7 -", "7 x", "0 - 1 - 2 -", "0 - 1 - 2 - 3 - 4 -", "3 a 1 b 2 c", "1 a 2 a 9 b", "1 a 2 a 3 a",
        "0 a 1 a 2 b 3 b 4 c 5 c", "10 a 20 b 30 a 40 b 50 a", "5 a 4 a 3 a 2 b 1 c 0 d",
    };
    static final int[][] BEGINNINGS = {{0, 0}, {2, 0}, {1, 7}, {3, 6}};

    public static void main(String[] arguments) {
        for (String cluster : CLUSTERS) {
            String[] words = cluster.split(" ");
            List<BrokerMetadata> brokers = new ArrayList<>();
            for (int at = 0; at < words.length; at += 2) {
                Optional<String> rack = words[at + 1].equals("-") ? Optional.empty() : Optional.of(words[at + 1]);
                brokers.add(new BrokerMetadata(Integer.parseInt(words[at]), rack));
            }
            for (int replicas = 1; replicas <= Math.min(brokers.size(), REPLICAS_MAX); replicas++) {
                for (int[] beginning : BEGINNINGS) {
                    var found = new TreeMap<>(AdminUtils.assignReplicasToBrokers(
                        brokers, PARTITIONS, replicas, beginning[0], beginning[1]));
                    String text = found.values().stream()
                        .map(each -> each.stream().map(String::valueOf).collect(Collectors.joining(",")))
                        .collect(Collectors.joining(" "));
                    System.out.println(cluster + "|" + replicas + "|" + beginning[0] + "|" + beginning[1] + "|" + text);
                }
            }
        }
    }
}
