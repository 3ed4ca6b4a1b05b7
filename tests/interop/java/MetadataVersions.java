// What Kafka's own MetadataVersion says of each of its versions, and which one each argument names.
import org.apache.kafka.server.common.MetadataVersion;

public final class MetadataVersions {
    public static void main(String[] texts) {
        for (MetadataVersion version : MetadataVersion.VERSIONS) {
            System.out.printf(
                    "%s %b %b %b %d %d %d %d %d %b %b%n",
                    version,
                    version.isFeatureVersioningSupported(),
                    version.isTopicIdsSupported(),
                    version.isLeaderRecoverySupported(),
                    version.offsetCommitValueVersion(false),
                    version.groupMetadataValueVersion(),
                    version.fetchRequestVersion(),
                    version.listOffsetRequestVersion(),
                    version.offsetForLeaderEpochRequestVersion(),
                    version.isTruncationOnFetchSupported(),
                    version.isAlterPartitionSupported());
        }
        for (String text : texts) {
            System.out.println(text + " = " + named(text));
        }
    }

    private static String named(String text) {
        try {
            return MetadataVersion.fromVersionString(text).toString();
        } catch (IllegalArgumentException nothing) {
            return "-";
        }
    }
}
