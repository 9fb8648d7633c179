package headwater.lineage;

import java.util.regex.Matcher;
import java.util.regex.Pattern;

/* Masks secrets before they leave the JVM (G12): settings with the name of a secret, and secrets in URLs. */
public class SecretMask {
    public static final String MASK = "*********(redacted)";

    private static final Pattern SECRET = Pattern.compile(
        "(?i).*(secret|password|passwd|pwd|token|credential|passphrase|jaas|access[._-]?key|api[._-]?key"
        + "|private[._-]?key|account[._-]?key|shared[._-]?key|sas[._-]?key|signature).*");
    // a user ends at the last @: passwords hold @, and those of object stores hold /
    private static final Pattern IN_AUTHORITY = Pattern.compile(
        "//(?![^/:@?#\\s'\"]*(?::\\d+)?(?:[/?#;,\\s'\")]|$))[^\\s'\"]*@");
    private static final Pattern SAME_USER = Pattern.compile(
        "//([^,:@/\\s]+:[^,@/\\s]*@)[\\w.-]+(?::\\d+)?(?:,\\1[\\w.-]+(?::\\d+)?)+");
    private static final Pattern IN_STORE = Pattern.compile("(?i)(s3[an]?:)//[^/\\s]*:[^\\s'\"]*@");
    private static final Pattern IN_ORACLE = Pattern.compile("(?i)(:(?:thin|oci8?):)[^@\\s]*/[^\\s'\"]*@");
    private static final Pattern IN_PARAMETERS = Pattern.compile(
        "(?i)([?&;,\\s(]|^)([\\w.-]*(?:secret|password|passwd|pwd|token|credential|passphrase|access[._-]?key"
        + "|api[._-]?key|sig|signature|private[._-]?key|account[._-]?key))="
        + "(\\{(?:[^}]|\\}\\})*\\}|'[^']*'|\"[^\"]*\"|(?:[^&;,)\\s]|,(?!\\s|[\\w.-]+=|$))+)");
    private static final Pattern CONTAINER = Pattern.compile("(?i)^(abfss?|wasbs?)://[^/:]*@.*");

    /* A value that may hold a URL, without the secrets in it. */
    public static String url(String value) {
        if (value == null || (value.indexOf("//") < 0 && value.indexOf('=') < 0 && value.indexOf('@') < 0)) {
            return value;
        }
        if (!CONTAINER.matcher(value).matches()) { // in these URLs the part before @ is a container
            Matcher several = SAME_USER.matcher(value);
            if (several.find()) {
                value = value.replace(several.group(1), "");
            }
            value = IN_STORE.matcher(value).replaceAll("$1//");
            value = IN_AUTHORITY.matcher(value).replaceAll("//");
        }
        value = IN_ORACLE.matcher(value).replaceAll("$1@");
        return IN_PARAMETERS.matcher(value).replaceAll("$1$2=" + MASK);
    }

    /* The value of a setting; a mask if its name says that it is a secret. */
    public static String option(String name, String value) {
        return SECRET.matcher(name).matches() ? MASK : url(value);
    }
}
