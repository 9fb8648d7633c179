package headwater.pipeline;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.util.zip.CRC32;
import org.apache.spark.sql.api.java.UDF2;

/*
 * The reason why a line is not an event: null if it is one, empty if the line is blank. The second argument says
 * whether lines have a checksum behind the event (log/files/checked_lines.py).
 */
public class EventCheck implements UDF2 {
    public static final int SUFFIX = 9;  // a tab and eight digits
    public static final String DAMAGED = "damaged on disk: the line does not match its checksum";

    public Object call(Object value, Object isChecked) {
        if (value == null) {
            return "";
        }
        byte[] line = (byte[]) value;
        int length = ((Boolean) isChecked).booleanValue() ? eventLength(line) : line.length;
        if (length < 0) {
            return DAMAGED;
        }
        if (shared == null) {
            shared = factory();
        }
        return reason(shared, line, length);
    }

    /* The length of the event in a line with a checksum; -1 if they do not match. */
    public static int eventLength(byte[] line) {
        int length = line.length - SUFFIX;
        if (length < 0 || line[length] != '\t') {
            return -1;
        }
        long expected = 0;
        for (int i = length + 1; i < line.length; i++) {
            int digit = line[i] >= '0' && line[i] <= '9' ? line[i] - '0'
                : line[i] >= 'a' && line[i] <= 'f' ? line[i] - 'a' + 10 : -1;
            if (digit < 0) {
                return -1;
            }
            expected = expected << 4 | digit;
        }
        CRC32 found = new CRC32();
        found.update(line, 0, length);
        return found.getValue() == expected ? length : -1;
    }

    public static JsonFactory factory() {
        return new JsonFactory();
    }

    public static boolean isBlank(byte[] line, int length) {
        for (int i = 0; i < length; i++) {
            if (line[i] != ' ' && line[i] != '\t' && line[i] != '\r') {
                return false;
            }
        }
        return true;
    }

    private transient JsonFactory shared;

    public static String reason(JsonFactory factory, byte[] line, int length) {
        if (isBlank(line, length)) {
            return "";
        }
        try {
            JsonParser parser = factory.createParser(line, 0, length);
            JsonToken first = parser.nextToken();
            if (first != JsonToken.START_OBJECT) {
                return "not a JSON object but " + kind(first);
            }
            walk(parser);
            if (parser.nextToken() != null) {
                return "not JSON: something follows the object at byte " + parser.getTokenLocation().getByteOffset();
            }
            return null;
        } catch (JsonProcessingException error) {
            long at = error.getLocation() == null ? -1 : error.getLocation().getByteOffset();
            return "not JSON: " + error.getOriginalMessage() + (at < 0 ? "" : " (byte " + at + ")");
        } catch (IOException error) {
            return "not JSON: " + error.getMessage();
        }
    }

    /* Reads to the end of the object, with the same checks as Scan: the two must never differ. */
    private static void walk(JsonParser parser) throws IOException {
        int depth = 1;
        while (depth > 0) {
            JsonToken token = parser.nextToken();
            if (token == JsonToken.START_OBJECT) {
                depth++;
            } else if (token == JsonToken.END_OBJECT) {
                depth--;
            } else if (token == JsonToken.START_ARRAY) {
                parser.skipChildren();
            } else if (token == JsonToken.VALUE_STRING) {
                parser.getTextLength();
            } else if (token == JsonToken.VALUE_NUMBER_INT) {
                parser.getNumberType();
            } else if (token == JsonToken.VALUE_NUMBER_FLOAT) {
                parser.getDoubleValue();
            } else if (token == null) {
                return;
            }
        }
    }

    private static String kind(JsonToken token) {
        if (token == null) {
            return "nothing";
        }
        if (token == JsonToken.START_ARRAY) {
            return "an array";
        }
        if (token == JsonToken.VALUE_STRING) {
            return "a string";
        }
        return token.isNumeric() ? "a number" : "the literal " + token.asString();
    }
}
