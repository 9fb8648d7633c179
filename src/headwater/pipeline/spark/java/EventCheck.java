package headwater.pipeline;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import org.apache.spark.sql.api.java.UDF1;

/* The reason why a line is not an event: null if it is one, empty if the line is blank. */
public class EventCheck implements UDF1 {
    public Object call(Object value) {
        return value == null ? "" : reason((byte[]) value);
    }

    static JsonFactory factory() {
        return new JsonFactory();
    }

    static boolean isBlank(byte[] line) {
        for (int i = 0; i < line.length; i++) {
            if (line[i] != ' ' && line[i] != '\t' && line[i] != '\r') {
                return false;
            }
        }
        return true;
    }

    private transient JsonFactory shared;

    private String reason(byte[] line) {
        if (isBlank(line)) {
            return "";
        }
        if (shared == null) {
            shared = factory();
        }
        try {
            JsonParser parser = shared.createParser(line, 0, line.length);
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
