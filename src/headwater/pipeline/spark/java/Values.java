package headwater.pipeline;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import com.fasterxml.jackson.core.io.JsonStringEncoder;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.math.BigDecimal;
import java.math.MathContext;
import java.math.RoundingMode;
import java.time.ZoneOffset;
import org.apache.spark.sql.catalyst.util.DateTimeUtils;
import org.apache.spark.unsafe.types.UTF8String;

/*
 * Conversions of JSON values, exact and total: a value that the type cannot hold is null, and none is an error.
 *
 * A conversion compares the number, not how it is written: 5.0 and 5e0 are the integer 5. Text is the value's
 * own text. Janino has no generics and no lambdas; hence the plain style.
 */
public final class Values {
    public static final long NO_MOMENT = Long.MIN_VALUE;
    public static final int NEVER = 0, CANONICAL = 1, ALWAYS = 2;  // when a text becomes a number

    private static final long FIRST_SECOND = -62135596800L;  // 0001-01-01T00:00:00Z
    private static final long LAST_SECOND = 253402300799L;   // 9999-12-31T23:59:59Z
    private static final int SAFE_DIGITS = 15;               // a double keeps every number of so many digits
    private static final int MOST_DIGITS = 17;               // and so many distinguish any two doubles
    private static final double[] POWERS = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14};
    private static final Long ZERO = Long.valueOf(0), ONE = Long.valueOf(1);

    private Values() {
    }

    /* The value of the current token as a boolean, or null: 1 is not the value true. */
    public static Boolean toBoolean(JsonParser json, JsonToken token, int texts) throws IOException {
        switch (token.id()) {
            case 6:
                return texts == NEVER ? null : truth(json.getText(), texts == ALWAYS);
            case 9:
                return Boolean.TRUE;
            case 10:
                return Boolean.FALSE;
            default:
                return null;
        }
    }

    private static Boolean truth(String text, boolean digits) {
        if (text.equals("true") || (digits && text.equals("1"))) {
            return Boolean.TRUE;
        }
        return text.equals("false") || (digits && text.equals("0")) ? Boolean.FALSE : null;
    }

    /* The value of the current token as a 64-bit integer, or null. */
    public static Long toLong(JsonParser json, JsonToken token, int texts) throws IOException {
        switch (token.id()) {
            case 6:
                return isNumber(json, texts) ? integer(json.getText()) : null;
            case 7:
                if (json.getNumberType() == JsonParser.NumberType.BIG_INTEGER) {
                    return null;
                }
                return Long.valueOf(json.getLongValue());
            case 8:
                return integer(json.getText());
            case 9:
                return ONE;
            case 10:
                return ZERO;
            default:
                return null;
        }
    }

    /* The value of the current token as a double, or null. */
    public static Double toDouble(JsonParser json, JsonToken token, int texts) throws IOException {
        switch (token.id()) {
            case 6:
                if (!isNumber(json, texts)) {
                    return null;
                }
                break;
            case 7:
            case 8:
                break;
            case 9:
                return Double.valueOf(1);
            case 10:
                return Double.valueOf(0);
            default:
                return null;
        }
        double found = toExact(json);
        return found != found ? null : Double.valueOf(found);
    }

    /* The value of the current token in microseconds since 1970, or NO_MOMENT. Digits below are cut: see isFine. */
    public static long toMoment(JsonParser json, JsonToken token) throws IOException {
        if (token != JsonToken.VALUE_STRING) {
            return NO_MOMENT;
        }
        char[] text = json.getTextCharacters();
        int from = json.getTextOffset(), length = json.getTextLength();
        long found = moment(text, from, length);
        return found != NO_MOMENT ? found : otherMoment(text, from, length);
    }

    /* yyyy-MM-dd, or yyyy-MM-dd, a blank or T and a time of day in one of Spark's other forms. */
    private static long otherMoment(char[] text, int from, int length) {
        if (length < 10 || length > 64 || text[from + 4] != '-' || text[from + 7] != '-' || digits(text, from, 4) < 0
                || digits(text, from + 5, 2) < 0 || digits(text, from + 8, 2) < 0) {
            return NO_MOMENT;
        }
        if (length > 10 && (length < 16 || (text[from + 10] != ' ' && text[from + 10] != 'T')
                || digits(text, from + 11, 2) < 0 || text[from + 13] != ':' || digits(text, from + 14, 2) < 0)) {
            return NO_MOMENT;
        }
        for (int i = from; i < from + length; i++) {
            if (text[i] > 126 || text[i] < 32) {
                return NO_MOMENT;
            }
        }
        UTF8String whole = UTF8String.fromString(new String(text, from, length));
        scala.Option found = DateTimeUtils.stringToTimestamp(whole, ZoneOffset.UTC);
        if (found.isEmpty()) {
            return NO_MOMENT;
        }
        long micros = ((Long) found.get()).longValue();
        long second = Math.floorDiv(micros, 1000000L);
        return second < FIRST_SECOND || second > LAST_SECOND ? NO_MOMENT : micros;
    }

    /* yyyy-MM-ddTHH:mm:ss[.f…][Z|±HH:mm|±HHmm] of the years 1 to 9999 in microseconds since 1970, or NO_MOMENT. */
    public static long moment(char[] t, int o, int length) {
        if (length < 19 || length > 35) {
            return NO_MOMENT;
        }
        if (t[o + 4] != '-' || t[o + 7] != '-' || t[o + 10] != 'T' || t[o + 13] != ':' || t[o + 16] != ':') {
            return NO_MOMENT;
        }
        int year = digits(t, o, 4), month = digits(t, o + 5, 2), day = digits(t, o + 8, 2);
        int hour = digits(t, o + 11, 2), minute = digits(t, o + 14, 2), second = digits(t, o + 17, 2);
        if (year < 1 || month < 1 || month > 12 || day < 1 || hour < 0 || hour > 23 || minute < 0 || minute > 59
                || second < 0 || second > 59) {
            return NO_MOMENT;
        }
        int last = month == 2 ? ((year % 4 == 0 && year % 100 != 0) || year % 400 == 0 ? 29 : 28)
                : (month == 4 || month == 6 || month == 9 || month == 11 ? 30 : 31);
        if (day > last) {
            return NO_MOMENT;
        }
        int end = o + length, at = o + 19;
        long micros = 0;
        if (at < end && t[at] == '.') {
            int start = ++at;
            while (at < end && t[at] >= '0' && t[at] <= '9') {
                at++;
            }
            if (at == start || at - start > 9) {
                return NO_MOMENT;
            }
            for (int i = start; i < start + 6; i++) {
                micros = micros * 10 + (i < at ? t[i] - '0' : 0);
            }
        }
        int offset = 0;
        if (at < end && !(t[at] == 'Z' && at + 1 == end)) {
            if (t[at] != '+' && t[at] != '-') {
                return NO_MOMENT;
            }
            int left = end - at - 1;
            boolean colon = left == 5 && t[at + 3] == ':';
            if (!colon && left != 4) {
                return NO_MOMENT;
            }
            int hours = digits(t, at + 1, 2), minutes = digits(t, at + (colon ? 4 : 3), 2);
            if (hours < 0 || hours > 17 || minutes < 0 || minutes > 59) {
                return NO_MOMENT;
            }
            offset = (hours * 60 + minutes) * (t[at] == '-' ? -60 : 60);
        }
        long seconds = daysSince1970(year, month, day) * 86400L + hour * 3600 + minute * 60 + second - offset;
        return seconds < FIRST_SECOND || seconds > LAST_SECOND ? NO_MOMENT : seconds * 1000000L + micros;
    }

    private static long daysSince1970(int year, int month, int day) {
        // years begin in March, so that the day of a leap year is the last
        long y = month <= 2 ? year - 1 : year;
        long century = y / 400, yearOfEra = y - century * 400;
        long dayOfYear = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
        return century * 146097 + yearOfEra * 365 + yearOfEra / 4 - yearOfEra / 100 + dayOfYear - 719468;
    }

    /* Whether a moment has digits below the microsecond that are not zero. */
    public static boolean isFine(char[] text, int from, int length) {
        int end = from + length, at = from;
        while (at < end && text[at] != '.') {
            at++;
        }
        for (int i = at + 7; i < end && text[i] >= '0' && text[i] <= '9'; i++) {
            if (text[i] != '0') {
                return true;
            }
        }
        return false;
    }

    public static int digits(char[] text, int from, int count) {
        int value = 0;
        for (int i = from; i < from + count; i++) {
            if (text[i] < '0' || text[i] > '9') {
                return -1;
            }
            value = value * 10 + text[i] - '0';
        }
        return value;
    }

    /* The 64-bit integer that a number written as text is, or null. */
    private static Long integer(String text) {
        try {
            return Long.valueOf(new BigDecimal(text).longValueExact());
        } catch (ArithmeticException notWhole) {
            return null;
        } catch (NumberFormatException exponentTooLarge) {
            return null;
        }
    }

    /*
     * The double that a number written as text is; NaN if no double is. A double is the number if it equals it when
     * written with the fewest digits that distinguish it, as every product writes it: 0.1 is one,
     * 0.10000000000000001 and 0.99999999999999999999 are none, and neither is 18446744073709551616.
     */
    public static double exact(char[] text, int from, int length) {
        if (length <= SAFE_DIGITS) {
            double quotient = quotient(text, from, from + length);
            if (quotient == quotient) {
                return quotient;
            }
        }
        int significant = 0, zeros = 0, exponent = 0;
        boolean begun = false, hasExponent = false;
        for (int i = from; i < from + length; i++) {
            char c = text[i];
            if (c == 'e' || c == 'E') {
                hasExponent = true;
                exponent = exponent(text, i + 1, from + length);
                break;
            }
            if (c > '0' && c <= '9') {
                significant += begun ? zeros + 1 : 1;
                begun = true;
                zeros = 0;
            } else if (c == '0') {
                zeros++;
            }
        }
        String whole = new String(text, from, length);
        double found = Double.parseDouble(whole);
        if (significant == 0) {
            return found;
        }
        if (significant <= SAFE_DIGITS && exponent < 250 && length < 40) {
            return found;
        }
        if (Double.isInfinite(found) || found == 0 || significant > MOST_DIGITS) {
            return Double.NaN;
        }
        BigDecimal number;
        try {
            number = new BigDecimal(whole);
        } catch (NumberFormatException exponentTooLarge) {
            return Double.NaN;
        }
        // not by Double.toString, which writes too many digits of some numbers before Java 19
        BigDecimal held = new BigDecimal(found);
        if (held.round(new MathContext(significant, RoundingMode.HALF_EVEN)).compareTo(number) != 0) {
            return Double.NaN;
        }
        return isShorter(held, significant, RoundingMode.DOWN, found)
                || isShorter(held, significant, RoundingMode.UP, found) ? Double.NaN : found;
    }

    /*
     * A short number without an exponent, as its digits divided by a power of ten; NaN for another one. A double holds
     * both, so the quotient is rounded once, as it is when the text is read.
     */
    private static double quotient(char[] text, int from, int end) {
        boolean isNegative = from < end && text[from] == '-';
        long digits = 0;
        int point = -1;
        for (int i = isNegative ? from + 1 : from; i < end; i++) {
            char c = text[i];
            if (c >= '0' && c <= '9') {
                digits = digits * 10 + (c - '0');
            } else if (c == '.' && point < 0) {
                point = i;
            } else {
                return Double.NaN;
            }
        }
        double found = point < 0 ? (double) digits : digits / POWERS[end - point - 1];
        return isNegative ? -found : found;
    }

    /* Whether a double can be written with one digit less. */
    private static boolean isShorter(BigDecimal held, int digits, RoundingMode mode, double found) {
        return digits > 1 && held.round(new MathContext(digits - 1, mode)).doubleValue() == found;
    }

    /* The exponent without its sign; large ones are 999. */
    private static int exponent(char[] text, int from, int end) {
        int value = 0;
        for (int i = from; i < end; i++) {
            if (text[i] >= '0' && text[i] <= '9') {
                value = Math.min(999, value * 10 + text[i] - '0');
            }
        }
        return value;
    }

    /* Whether a number has so few digits, and no exponent, that a double holds it. */
    static boolean isShort(JsonParser json) throws IOException {
        int length = json.getTextLength();
        if (length > SAFE_DIGITS + 1) {
            return false;
        }
        char[] text = json.getTextCharacters();
        int from = json.getTextOffset();
        for (int i = from; i < from + length; i++) {
            if (text[i] == 'e' || text[i] == 'E') {
                return false;
            }
        }
        return true;
    }

    /* `exact` of the current number. */
    public static double toExact(JsonParser json) throws IOException {
        return exact(json.getTextCharacters(), json.getTextOffset(), json.getTextLength());
    }

    /* Whether an integer is a double, as `exact` says. */
    public static boolean isExact(long number) {
        if (number >= -(1L << 53) && number <= 1L << 53) {
            return true;
        }
        char[] text = Long.toString(number).toCharArray();
        double held = exact(text, 0, text.length);
        return held == held;
    }

    /* Whether the text is a number: in its canonical form, or in any. */
    private static boolean isNumber(JsonParser json, int texts) throws IOException {
        if (texts == NEVER) {
            return false;
        }
        char[] text = json.getTextCharacters();
        int at = json.getTextOffset(), end = at + json.getTextLength();
        boolean isCanonical = texts == CANONICAL;
        if (end - at > 1000) {
            return false;  // as for numbers: Jackson refuses longer ones
        }
        boolean isNegative = at < end && text[at] == '-';
        if (isNegative) {
            at++;
        }
        int start = at;
        at = skipDigits(text, at, end);
        if (at == start || (isCanonical && text[start] == '0' && at > start + 1)) {
            return false;
        }
        boolean isZero = text[start] == '0' && at == start + 1;
        if (at < end && text[at] == '.') {
            int point = at;
            at = skipDigits(text, at + 1, end);
            if (at == point + 1 || (isCanonical && text[at - 1] == '0')) {
                return false;
            }
            isZero = false;
        }
        if (isCanonical) {
            return at == end && !(isZero && isNegative);
        }
        if (at < end && (text[at] == 'e' || text[at] == 'E')) {
            at++;
            if (at < end && (text[at] == '+' || text[at] == '-')) {
                at++;
            }
            start = at;
            at = skipDigits(text, at, end);
            if (at == start) {
                return false;
            }
        }
        return at == end;
    }

    private static int skipDigits(char[] text, int from, int end) {
        int at = from;
        while (at < end && text[at] >= '0' && text[at] <= '9') {
            at++;
        }
        return at;
    }

    /* Whether all surrogates of a text are pairs; others have no UTF-8. */
    public static boolean isWhole(char[] text, int from, int length) {
        int end = from + length, all = 0;
        for (int i = from; i < end; i++) {
            all |= text[i];
        }
        if (all < 0xD800) {
            return true;
        }
        for (int i = from; i < end; i++) {
            if (text[i] >= 0xD800 && text[i] <= 0xDFFF) {
                if (text[i] > 0xDBFF || i + 1 == end || text[i + 1] < 0xDC00 || text[i + 1] > 0xDFFF) {
                    return false;
                }
                i++;
            }
        }
        return true;
    }

    public static boolean isWhole(String text) {
        return isWhole(text.toCharArray(), 0, text.length());
    }

    /*
     * JSON text as it may stand in a JSON column: unchanged, or, if a string in it has half a surrogate pair, which
     * no product reads, as a string with that JSON text.
     */
    public static byte[] readable(byte[] json) {
        boolean isHigh = false, isBroken = false;
        for (int i = 0; i < json.length && !isBroken; i++) {
            if (json[i] != '\\' || i + 1 == json.length) {
                isBroken = isHigh;
                continue;
            }
            i++;
            int unit = json[i] == 'u' && i + 4 < json.length ? hex(json, i + 1) : 0;
            if (unit >= 0xDC00 && unit <= 0xDFFF) {
                isBroken = !isHigh;
                isHigh = false;
            } else {
                isBroken = isHigh;
                isHigh = unit >= 0xD800 && unit <= 0xDBFF;
            }
            if (unit > 0) {
                i += 4;
            }
        }
        if (!isBroken) {
            return json;
        }
        ByteArrayOutputStream out = new ByteArrayOutputStream(json.length + 16);
        out.write('"');
        for (int i = 0; i < json.length; i++) {
            if (json[i] == '"' || json[i] == '\\') {
                out.write('\\');
            }
            out.write(json[i]);
        }
        out.write('"');
        return out.toByteArray();
    }

    private static int hex(byte[] text, int from) {
        int value = 0;
        for (int i = from; i < from + 4; i++) {
            value = value * 16 + Math.max(0, Character.digit((char) text[i], 16));
        }
        return value;
    }

    /* A name in quotes; halves of surrogate pairs are escaped. */
    public static byte[] quoted(String name) throws IOException {
        ByteArrayOutputStream out = new ByteArrayOutputStream(name.length() + 2);
        out.write('"');
        if (isWhole(name)) {
            out.write(JsonStringEncoder.getInstance().quoteAsUTF8(name));
        } else {
            char[] text = JsonStringEncoder.getInstance().quoteAsString(name);
            for (int i = 0; i < text.length; i++) {
                out.write(
                    (text[i] > 126 ? "\\u" + String.format("%04x", new Object[] {Integer.valueOf(text[i])})
                        : String.valueOf(text[i])).getBytes("UTF-8"));
            }
        }
        out.write('"');
        return out.toByteArray();
    }

    /* The text of the current string, number, true or false; null if it has no UTF-8. */
    public static UTF8String toText(JsonParser json) throws IOException {
        char[] text = json.getTextCharacters();
        int from = json.getTextOffset(), length = json.getTextLength();
        byte[] ascii = new byte[length];
        for (int i = 0; i < length; i++) {
            char c = text[from + i];
            if (c > 127) {
                return isWhole(text, from, length) ? UTF8String.fromString(new String(text, from, length)) : null;
            }
            ascii[i] = (byte) c;
        }
        return UTF8String.fromBytes(ascii);
    }

    /* JSON text without the blanks between its tokens; each token keeps its bytes. */
    public static byte[] compact(byte[] json, int from, int end) {
        ByteArrayOutputStream out = new ByteArrayOutputStream(end - from);
        boolean inText = false;
        for (int i = from; i < end; i++) {
            byte b = json[i];
            if (inText) {
                out.write(b);
                if (b == '\\' && i + 1 < end) {
                    out.write(json[++i]);
                } else if (b == '"') {
                    inText = false;
                }
            } else if (b != ' ' && b != '\t' && b != '\r' && b != '\n') {
                out.write(b);
                inText = b == '"';
            }
        }
        return out.toByteArray();
    }
}
