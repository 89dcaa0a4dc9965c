import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.SerializationFeature;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.Field;
import org.apache.kafka.common.protocol.types.RawTaggedField;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.Struct;
import org.apache.kafka.common.protocol.types.TaggedFields;
import org.apache.kafka.common.protocol.types.Type;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.SimpleRecord;

import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.NavigableMap;
import java.util.TreeMap;

/**
 * Writes golden bytes of Kafka's messages. Each message is first built from Kafka's schema of its version, with a value
 * in every field, then read and written again by Kafka's own class for it; what that class writes is the golden form.
 *
 * Arguments: the directory to write to, which holds a file keys.txt with the keys of the APIs, one a line.
 */
public class Golden {
    /** A tag that no version of any message knows, as a newer peer might send it. */
    private static final int UNKNOWN_TAG = 10_000;

    private static final ObjectMapper JSON = new ObjectMapper().enable(SerializationFeature.INDENT_OUTPUT);

    public static void main(String[] args) throws Exception {
        Path out = Path.of(args[0]);
        for (String line : Files.readAllLines(out.resolve("keys.txt"))) {
            ApiMessageType api = ApiMessageType.fromApiKey(Short.parseShort(line.strip()));
            Path dir = out.resolve(snakeCase(api.name));
            Files.createDirectories(dir);
            for (short version = api.lowestSupportedVersion(); version <= api.highestSupportedVersion(false); version++) {
                write(dir, api, version, "request", api.requestSchemas()[version], api.newRequest(), api.newRequest());
                write(dir, api, version, "response", api.responseSchemas()[version], api.newResponse(), api.newResponse());
            }
        }
    }

    private static void write(Path dir, ApiMessageType api, short version, String kind, Schema schema,
                              ApiMessage full, ApiMessage nulls) throws Exception {
        String name = "v" + version + "." + kind;
        write(dir.resolve(name), new Filler(false), schema, full, version);
        write(dir.resolve(name + ".nulls"), new Filler(true), schema, nulls, version);
    }

    private static void write(Path file, Filler filler, Schema schema, ApiMessage message, short version)
            throws Exception {
        Struct struct = filler.struct(schema, true);
        ByteBuffer built = ByteBuffer.allocate(struct.sizeOf());
        struct.writeTo(built);
        built.flip();
        message.read(new ByteBufferAccessor(built), version);
        if (built.hasRemaining()) {
            throw new IllegalStateException(file + ": " + built.remaining() + " bytes were not read");
        }
        byte[] bytes = MessageUtil.toByteBufferAccessor(message, version).buffer().array();
        Files.writeString(Path.of(file + ".hex"), hex(bytes));
        Files.writeString(Path.of(file + ".json"), JSON.writeValueAsString(json(message, version)) + "\n");
    }

    private static JsonNode json(ApiMessage message, short version) throws Exception {
        Class<?> converter = Class.forName(message.getClass().getName() + "JsonConverter");
        Method write = converter.getMethod("write", message.getClass(), short.class, boolean.class);
        return (JsonNode) write.invoke(null, message, version, false);
    }

    /** Lines of 32 bytes. */
    private static String hex(byte[] bytes) {
        StringBuilder text = new StringBuilder();
        for (int i = 0; i < bytes.length; i++) {
            text.append(String.format("%02x", bytes[i]));
            if (i % 32 == 31 || i == bytes.length - 1) {
                text.append('\n');
            }
        }
        return text.toString();
    }

    private static String snakeCase(String camelCase) {
        return camelCase.replaceAll("(?<=[a-z])(?=[A-Z])", "_").toLowerCase();
    }

    /** Values from a counter, so that no two fields of a message hold the same. */
    private static final class Filler {
        private final boolean nulls;
        private int counter = 20;

        Filler(boolean nulls) {
            this.nulls = nulls;
        }

        Struct struct(Schema schema, boolean top) {
            Struct struct = new Struct(schema);
            for (BoundField field : schema.fields()) {
                if (field.def.type instanceof TaggedFields tagged) {
                    struct.set(field, tagged(tagged, top));
                } else {
                    struct.set(field, value(field.def.type));
                }
            }
            return struct;
        }

        private NavigableMap<Integer, Object> tagged(TaggedFields type, boolean top) {
            NavigableMap<Integer, Object> values = new TreeMap<>();
            for (var entry : type.fields().entrySet()) {
                Field field = entry.getValue();
                values.put(entry.getKey(), value(field.type));
            }
            if (top && !nulls) {
                values.put(UNKNOWN_TAG, new RawTaggedField(UNKNOWN_TAG, new byte[] {1, 2, 3}));
            }
            return values;
        }

        private Object value(Type type) {
            if (type.isNullable() && nulls) {
                return null;
            }
            if (type.arrayElementType().isPresent()) {
                List<Object> items = new ArrayList<>();
                for (int i = 0; i < (nulls ? 1 : 2); i++) {
                    items.add(value(type.arrayElementType().get()));
                }
                return items.toArray();
            }
            if (type instanceof Schema schema) {
                return struct(schema, false);
            }
            return primitive(type.toString().replace("COMPACT_", "").replace("NULLABLE_", ""));
        }

        private Object primitive(String type) {
            int next = counter++;
            return switch (type) {
                case "BOOLEAN" -> !nulls;
                case "INT8" -> (byte) (next % 100 + 20);
                case "INT16" -> (short) (0x100 + next);
                case "UINT16" -> 0xff00 + next % 256;
                case "INT32" -> 0x10000 + next;
                case "UINT32" -> 0xffff0000L + next;
                case "INT64" -> 0x1_0000_0000L + next;
                case "FLOAT64" -> next + 0.5;
                case "UUID" -> new Uuid(0x0123456789abcdefL, next);
                case "STRING" -> "text-" + next;
                case "BYTES" -> ByteBuffer.wrap(("bytes-" + next).getBytes(StandardCharsets.UTF_8));
                case "RECORDS" -> records(next);
                default -> throw new IllegalArgumentException("no value for type " + type);
            };
        }

        /** One batch of two records. */
        private static MemoryRecords records(int next) {
            byte[] key = ("key-" + next).getBytes(StandardCharsets.UTF_8);
            byte[] value = ("value-" + next).getBytes(StandardCharsets.UTF_8);
            return MemoryRecords.withRecords(Compression.NONE,
                new SimpleRecord(1_700_000_000_000L + next, key, value),
                new SimpleRecord(1_700_000_000_001L + next, null, value));
        }
    }
}
