package headwater.lineage;

/*
 * JSON text, appended piece by piece, with a byte budget (G8). The caller writes the commas: `comma()` adds
 * one where a value has just ended. Text is counted in chars, which is close enough to bytes for a budget.
 *
 * Compiled by Janino, which has no lambdas and hardly any generics; hence the plain style here and beside.
 */
public class JsonWriter {
    public static final class Full extends RuntimeException {
        public Full() {
            super("the byte budget is used up", null, false, false);
        }
    }

    private static final char[] HEX = "0123456789abcdef".toCharArray();

    private final StringBuilder text = new StringBuilder(512);
    private final int budget;

    public JsonWriter(int budget) {
        this.budget = budget;
    }

    /* Where the text ends now; `back(mark)` forgets what was written since. */
    public int mark() {
        return text.length();
    }

    public void back(int mark) {
        text.setLength(mark);
    }

    public int length() {
        return text.length();
    }

    private void check() {
        if (text.length() > budget) {
            throw new Full();
        }
    }

    /* JSON that is ready: brackets, commas, text of another encoder. */
    public JsonWriter raw(String json) {
        text.append(json);
        check();
        return this;
    }

    public JsonWriter raw(char json) {
        text.append(json);
        return this;
    }

    /* A comma, unless an object or array has just begun or a key was just written. */
    public JsonWriter comma() {
        int length = text.length();
        if (length > 0) {
            char last = text.charAt(length - 1);
            if (last != '{' && last != '[' && last != ':' && last != ',') {
                text.append(',');
            }
        }
        return this;
    }

    /* A key, with the comma before it if one is needed. */
    public JsonWriter key(String name) {
        comma();
        quote(name);
        text.append(':');
        return this;
    }

    /* A string value, or null. */
    public JsonWriter string(String value) {
        if (value == null) {
            return raw("null");
        }
        if (value.length() > budget) {
            throw new Full();
        }
        quote(value);
        check();
        return this;
    }

    /* A string cut to `most` chars; an ellipsis marks the cut. */
    public JsonWriter string(String value, int most) {
        if (value != null && value.length() > most) {
            int end = Character.isHighSurrogate(value.charAt(most - 1)) ? most - 1 : most;
            value = value.substring(0, end) + "\u2026";
        }
        return string(value);
    }

    public JsonWriter number(long value) {
        text.append(value);
        check();
        return this;
    }

    public JsonWriter bool(boolean value) {
        return raw(value ? "true" : "false");
    }

    public JsonWriter field(String name, String value) {
        return key(name).string(value);
    }

    public JsonWriter field(String name, long value) {
        return key(name).number(value);
    }

    public JsonWriter field(String name, boolean value) {
        return key(name).bool(value);
    }

    public String toString() {
        return text.toString();
    }

    private void quote(String value) {
        text.append('"');
        int length = value.length();
        for (int at = 0; at < length; at++) {
            char c = value.charAt(at);
            if (c == '"' || c == '\\') {
                text.append('\\').append(c);
            } else if (c < 0x20 || (c >= 0xD800 && c <= 0xDFFF && !paired(value, at))) {
                // half of a surrogate pair is legal in a Java string and nowhere else
                text.append("\\u").append(HEX[c < 0x20 ? 0 : 15]).append(HEX[c < 0x20 ? 0 : 15]);
                text.append(HEX[c < 0x20 ? (c >> 4) & 15 : 15]).append(HEX[c < 0x20 ? c & 15 : 13]);
            } else {
                text.append(c);
            }
        }
        text.append('"');
    }

    private static boolean paired(String value, int at) {
        char c = value.charAt(at);
        if (Character.isHighSurrogate(c)) {
            return at + 1 < value.length() && Character.isLowSurrogate(value.charAt(at + 1));
        }
        return at > 0 && Character.isHighSurrogate(value.charAt(at - 1));
    }
}
