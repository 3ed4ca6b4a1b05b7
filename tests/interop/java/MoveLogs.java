// Moves one partition with the Java client, and prints its directory, its future one and the lag each time it looks.
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.TopicPartitionReplica;

public class MoveLogs {
    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        TopicPartitionReplica replica =
            new TopicPartitionReplica(topic, Integer.parseInt(arguments[2]), Integer.parseInt(arguments[3]));
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        try (Admin admin = Admin.create(properties)) {
            admin.alterReplicaLogDirs(Map.of(replica, arguments[4])).all().get();
            for (int attempt = 0; attempt < 200; attempt++) {
                var info = admin.describeReplicaLogDirs(List.of(replica)).all().get().get(replica);
                System.out.println(info.getCurrentReplicaLogDir() + " " + info.getFutureReplicaLogDir()
                    + " " + info.getFutureReplicaOffsetLag());
                if (arguments[4].equals(info.getCurrentReplicaLogDir())) {
                    return;
                }
                Thread.sleep(100);
            }
        }
        System.exit(1);
    }
}
