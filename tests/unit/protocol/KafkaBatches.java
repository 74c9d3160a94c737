// Prints batches as Apache Kafka writes them, for apache_kafka_batches.txt. With the jars of tests/support/apache-kafka.pom.xml:
//     javac -cp "libs/*" KafkaBatches.java && java -cp "libs/*:." KafkaBatches > batches.txt
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.SimpleRecord;

public class KafkaBatches {
    static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static void print(String name, MemoryRecords records) {
        ByteBuffer buffer = records.buffer().duplicate();
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        System.out.println(name + " " + HexFormat.of().formatHex(bytes));
    }

    static SimpleRecord record(long timestamp, String key, String value, Header... headers) {
        return new SimpleRecord(
            timestamp, key == null ? null : utf8(key), value == null ? null : utf8(value), headers);
    }

    static SimpleRecord[] mixed() {
        return new SimpleRecord[] {
            record(1600000000000L, "k1", "v1"),
            record(1600000000005L, null, "value only"),
            record(1599999999990L, "tombstone", null),
            record(1600000100000L, null, null),
            record(1600000000001L, "", ""),
            record(1600000000002L, "h", "with headers",
                new RecordHeader("a", utf8("1")), new RecordHeader("schlüssel", null), new RecordHeader("a", utf8(""))),
        };
    }

    static byte[] big() {
        byte[] bytes = new byte[150000];
        for (int at = 0; at < bytes.length; at++) {
            int i = at % 500;
            bytes[at] = (byte) ((i * i >>> 3) + (i >>> 7) * 31);
        }
        return bytes;
    }

    public static void main(String[] arguments) {
        Compression[] codecs = {
            Compression.NONE, Compression.gzip().build(), Compression.snappy().build(), Compression.lz4().build(),
            Compression.zstd().build(),
        };
        for (Compression codec : codecs) {
            String name = codec.type().name;
            print("mixed_" + name, MemoryRecords.withRecords(codec, mixed()));
            if (codec != Compression.NONE) {
                print("big_" + name, MemoryRecords.withRecords(
                    codec, new SimpleRecord(7L, null, big()), new SimpleRecord(8L, utf8("k"), big())));
            }
        }
        print("transactional", MemoryRecords.withTransactionalRecords(
            5000000000L, Compression.NONE, 4611686018427387904L, (short) 32766, 2147483646, 9,
            record(1L, "a", "b"), record(2L, "c", "d"), record(3L, "e", "f")));
        print("idempotent", MemoryRecords.withIdempotentRecords(
            Compression.NONE, 77L, (short) 3, 12, record(1L, "a", "b")));
        MemoryRecordsBuilder builder = MemoryRecords.builder(
            ByteBuffer.allocate(1024), (byte) 2, Compression.NONE, TimestampType.LOG_APPEND_TIME, 100L, 1700000000000L);
        builder.append(1L, utf8("x"), utf8("y"));
        builder.append(2L, utf8("x"), utf8("y"));
        print("log_append_time", builder.build());
        print("marker_commit", MemoryRecords.withEndTransactionMarker(
            42L, 1600000000000L, 5, 4000L, (short) 7, new EndTransactionMarker(ControlRecordType.COMMIT, 11)));
        print("marker_abort", MemoryRecords.withEndTransactionMarker(
            0L, 1600000000001L, -1, 4001L, (short) 0, new EndTransactionMarker(ControlRecordType.ABORT, 0)));
        print("magic1", MemoryRecords.withRecords((byte) 1, Compression.NONE, record(1L, "a", "b")));
        print("magic0", MemoryRecords.withRecords((byte) 0, Compression.NONE, record(-1L, "a", "b")));
    }
}
