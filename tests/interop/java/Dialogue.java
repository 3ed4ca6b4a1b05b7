import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.protocol.Errors;

/**
 * One command a line on standard input, its fields between tabs; the answer on standard output is any number of lines
 * and then "done", or "error", Kafka's number of it, and its words.  What differs between versions of the client is
 * asked of `Version`.
 */
final class Dialogue {
    /** What the clients of 2.1.1 and 4.4.0 have under different names. */
    interface Version extends Transactors.Offsets {
        TopicDescription describe(AdminClient admin, String topic) throws ExecutionException, InterruptedException;

        long offset(AdminClient admin, Records records, String topic, long question)
                throws ExecutionException, InterruptedException;
    }

    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);

    private final BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    private final Records records;
    private final Members members;
    private final Transactors transactors;
    private final AdminClient admin;
    private final Version version;

    private Dialogue(String address, Duration patience, Version version) {
        this.records = new Records(address, patience);
        this.members = new Members(address);
        this.transactors = new Transactors(address, version);
        this.admin = AdminClient.create(Map.of("bootstrap.servers", address));
        this.version = version;
    }

    static void hold(String[] arguments, Version version) throws IOException, InterruptedException {
        Duration patience = Duration.ofSeconds(Long.parseLong(arguments[1]));
        new Dialogue(arguments[0], patience, version).run();
        System.exit(0); // Threads of clients that failed may linger.
    }

    private void run() throws IOException, InterruptedException {
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] fields = line.split("\t", -1);
            try {
                List<String> answer = answer(fields[0], Arrays.copyOfRange(fields, 1, fields.length));
                answer.forEach(OUT::println);
                OUT.println("done");
            } catch (ExecutionException failed) {
                complain(failed.getCause());
            } catch (RuntimeException failed) {
                complain(failed);
            }
            OUT.flush();
        }
    }

    private static void complain(Throwable failed) {
        OUT.println("error\t" + Errors.forException(failed).code() + "\t" + Wire.text(failed.toString()));
    }

    private List<String> answer(String command, String[] of)
            throws IOException, ExecutionException, InterruptedException {
        return switch (command) {
            case "produce" -> produce(of[0], of[1], Integer.parseInt(of[2]), of[3], Integer.parseInt(of[4]));
            case "consume" -> consume(of[0], of[1], Long.parseLong(of[2]), of[3], of[4], Integer.parseInt(of[5]));
            case "create-topic" -> createTopic(of[0], Integer.parseInt(of[1]), Arrays.asList(of).subList(2, of.length));
            case "create-partitions" -> createPartitions(of[0], Integer.parseInt(of[1]));
            case "describe-topic" -> describeTopic(of[0]);
            case "describe-configs" -> describeConfigs(of[0]);
            case "describe-cluster" -> describeCluster();
            case "list-offsets" -> List.of("" + version.offset(admin, records, of[0], Long.parseLong(of[1])));
            case "delete-topic" -> deleteTopic(of[0]);
            case "committed" -> committed(of[0], of[1]);
            case "places" -> members.places(of[0], Integer.parseInt(of[1]));
            case "leave" -> members.leave(of[0], Integer.parseInt(of[1]));
            default -> {
                carryOut(command, of);
                yield List.of();
            }
        };
    }

    private void carryOut(String command, String[] of) throws ExecutionException, InterruptedException {
        switch (command) {
            case "join" -> members.join(of);
            case "transactor" -> transactors.open(of[0], of[1], of[2], of[3], of[4]);
            case "begin" -> transactors.begin(of[0]);
            case "send" -> transactors.send(of[0], of[1], Arrays.asList(of).subList(2, of.length));
            case "send-offset" -> transactors.sendOffset(of[0], Long.parseLong(of[1]));
            case "commit" -> transactors.commit(of[0]);
            case "abort" -> transactors.abort(of[0]);
            case "close" -> transactors.close(of[0]);
            default -> throw new IllegalArgumentException(command);
        }
    }

    private List<String> produce(String topic, String codec, int recordBytesMax, String idempotence, int count)
            throws IOException, ExecutionException, InterruptedException {
        List<ProducerRecord<byte[], byte[]>> toSend = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            toSend.add(Wire.record(topic, in.readLine()));
        }
        records.produce(topic, codec, recordBytesMax, idempotence, toSend);
        return List.of();
    }

    private List<String> consume(String topic, String where, long at, String reset, String isolation, int count) {
        List<String> lines = new ArrayList<>();
        for (ConsumerRecord<byte[], byte[]> record : records.consume(topic, where, at, reset, isolation, count)) {
            lines.add(Wire.line(record));
        }
        return lines;
    }

    private List<String> createTopic(String topic, int partitions, List<String> settings)
            throws ExecutionException, InterruptedException {
        Map<String, String> configs = new HashMap<>();
        for (String setting : settings) {
            String[] pair = setting.split("=", 2);
            configs.put(pair[0], pair[1]);
        }
        NewTopic newTopic = new NewTopic(topic, partitions, (short) 1).configs(configs);
        admin.createTopics(List.of(newTopic)).all().get();
        return List.of();
    }

    private List<String> createPartitions(String topic, int total) throws ExecutionException, InterruptedException {
        admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(total))).all().get();
        return List.of();
    }

    private List<String> describeTopic(String topic) throws ExecutionException, InterruptedException {
        List<String> lines = new ArrayList<>();
        for (TopicPartitionInfo one : version.describe(admin, topic).partitions()) {
            lines.add(one.partition() + "\t" + one.leader().id());
        }
        return lines;
    }

    private List<String> describeConfigs(String topic) throws ExecutionException, InterruptedException {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        Config config = admin.describeConfigs(List.of(resource)).all().get().get(resource);
        List<String> lines = new ArrayList<>();
        for (ConfigEntry entry : config.entries()) {
            lines.add(entry.name() + "\t" + Wire.text(entry.value() == null ? null : entry.value().getBytes()));
        }
        return lines;
    }

    /** The id and the controller, then a line for each broker. */
    private List<String> describeCluster() throws ExecutionException, InterruptedException {
        DescribeClusterResult cluster = admin.describeCluster();
        List<String> lines = new ArrayList<>();
        lines.add(cluster.clusterId().get() + "\t" + cluster.controller().get().id());
        for (Node node : cluster.nodes().get()) {
            lines.add(node.id() + "\t" + node.host() + ":" + node.port());
        }
        return lines;
    }

    /** Partition, offset and metadata of what the group has committed in the topic. */
    private List<String> committed(String group, String topic) throws ExecutionException, InterruptedException {
        List<String> lines = new ArrayList<>();
        admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().forEach((partition, at) -> {
            if (partition.topic().equals(topic) && at != null) {
                lines.add(partition.partition() + "\t" + at.offset() + "\t" + Wire.text(at.metadata()));
            }
        });
        return lines;
    }

    private List<String> deleteTopic(String topic) throws ExecutionException, InterruptedException {
        admin.deleteTopics(List.of(topic)).all().get();
        return List.of();
    }
}
