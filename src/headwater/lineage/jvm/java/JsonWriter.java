package headwater.lineage;

import java.util.ArrayList;

/*
 * JSON text, appended piece by piece, with a byte budget (G8). The caller writes the commas: `comma()` adds
 * one where a value has just ended. Text is counted in chars, which is close enough to bytes for a budget.
 *
 * Compiled by Janino, which has no lambdas, no multi-catch, no static methods of interfaces (List.of) and hardly any
 * generics; hence the plain style of these files.
 */
public class JsonWriter {
    public static final class Full extends RuntimeException {
        public Full() {
            super("the byte budget is used up", null, false, false);
        }
    }

    private final StringBuilder text = new StringBuilder(512);
    private final int budget;

    private final ArrayList cuts = new ArrayList();

    public JsonWriter(int budget) {
        this.budget = budget;
    }

    /* The current end of the text; `back(mark)` removes the text after it. */
    public int mark() {
        return text.length();
    }

    public void back(int mark) {
        text.setLength(mark);
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

    /* Ends an object or array that began at `mark`; removes an empty one and returns false. */
    public boolean end(int mark, char bracket) {
        if (text.length() == mark + 1) {
            back(mark);
            return false;
        }
        raw(bracket);
        return true;
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

    /* A number, a boolean, null, or the text of anything else, cut to `most` chars. */
    public JsonWriter value(Object value, int most) {
        if (value == null || value instanceof Number || value instanceof Boolean) {
            return raw(String.valueOf(value));
        }
        return string(value.toString(), most);
    }

    /* A list of values, each as by `value`. */
    public JsonWriter list(Iterable values) {
        raw('[');
        for (Object value : values) {
            comma().value(value, budget);
        }
        return raw(']');
    }

    /* A key and its value, or nothing if the value is null. */
    public JsonWriter optional(String name, Object value, int most) {
        return value == null ? this : key(name).value(value, most);
    }

    public JsonWriter field(String name, String value) {
        return key(name).string(value);
    }

    public JsonWriter field(String name, long value) {
        return key(name).number(value);
    }

    public String toString() {
        return text.toString();
    }

    private void quote(String value) {
        text.append('"');
        for (int at = 0; at < value.length();) {
            int c = value.codePointAt(at);
            at += Character.charCount(c);
            if (c == '"' || c == '\\') {
                text.append('\\').append((char) c);
            } else if (c < 0x20 || c >= 0xD800 && c <= 0xDFFF) {
                // half of a surrogate pair is legal in a Java string and nowhere else
                text.append("\\u").append(Integer.toHexString(0x10000 | (c < 0x20 ? c : 0xFFFD)).substring(1));
            } else {
                text.appendCodePoint(c);
            }
        }
        text.append('"');
    }

    /* Notes that something was left out of the document, which its reader must know. */
    public void cut(String what) {
        if (!cuts.contains(what)) {
            cuts.add(what);
        }
    }

    /* What was left out since there were `since` notes; null if nothing was. */
    public String cuts(int since) {
        return cuts.size() > since ? String.join("; ", cuts.subList(since, cuts.size())) : null;
    }

    public int cutCount() {
        return cuts.size();
    }
}
