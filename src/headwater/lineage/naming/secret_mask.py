"""Masks secrets in the texts of an event: values with the name of a secret, and users in URLs (G12).

SQL, error messages and descriptions are the user's own text, so a secret is found by the word before it.
A masked word too many costs a reader a guess; a secret that is sent cannot be taken back.
"""

from __future__ import annotations

import re
from typing import Any

import orjson

MASK = "*********(redacted)"

_NAME = (
    r"secret|passwo?r?d|passphrase|passwd|pwd|token|credential|jaas|access[._-]?key|api[._-]?key"
    r"|private[._-]?key|account[._-]?key|shared[._-]?key|sas[._-]?key|encryption[._-]?key|signature"
)
_SECRET_NAME = re.compile(rf"(?:{_NAME}|(?:\A|[._-])sig\Z)", re.IGNORECASE)
# A text without any of these holds no secret; looking for bytes is much faster than the patterns.
_MARKS = (
    b"@", b"secret", b"passw", b"passphrase", b"pwd", b"token", b"credential", b"jaas", b"key", b"sig",
    b"identified", b"bearer", b"basic ", b"aes_", b"hmac",
)  # fmt: skip

_QUOTED = r"'(?:[^'\\]|\\.|'')*'?|\"(?:[^\"\\]|\\.|\"\")*\"?|\{(?:[^}]|\}\})*\}|\\\"(?:(?!\\\").)*(?:\\\")?"
_BARE = r"(?:[^\s&;,)'\"}\]]|,(?!\s|[\w.-]+=|\Z))+"
_AFTER_NAME = re.compile(
    rf"(?P<name>(?:\b|_|%)[\w.-]*(?:{_NAME}|(?<![a-z])sig(?![a-z]))[\w.-]*[`'\"\\\])]*)"
    rf"(?:(?P<sign>\s*(?:=>|->|==?|:(?!//)|,(?=\s*['\"]))\s*)(?P<value>{_QUOTED}|{_BARE})"
    rf"|(?P<space>\s+)(?P<literal>{_QUOTED}))",
    re.IGNORECASE | re.DOTALL,
)
# A parameter of a URL ends at the next one, whatever commas and equals signs its value has.
_PARAMETER_NAME = rf"(?:[\w.-]*(?:{_NAME})[\w.-]*|sig)=(?![{{'\"])"
_PARAMETER = re.compile(
    rf"([?&]{_PARAMETER_NAME})[^\s&'\"]+|(;{_PARAMETER_NAME})[^\s;'\"]+"
    # Commas separate these parameters, and may also be in a value: all after the secret is masked.
    rf"|(jdbc:teradata://[^\s'\"]*?[/,]{_PARAMETER_NAME})[^\s'\"]+",
    re.IGNORECASE,
)
_PHRASE = re.compile(
    rf"(?P<before>\b(?:identified\s+(?:with\s+\S+\s+)?by|bearer|basic)\s+)(?P<value>{_QUOTED}|[^\s'\",;]{{6,}})",
    re.IGNORECASE | re.DOTALL,
)
# The key of a cipher is its second argument. In the name that Spark makes for the column it has no quotes.
_CIPHER = re.compile(r"\b(?:try_)?(?:aes_(?:en|de)crypt|hmac)\s*\(", re.IGNORECASE)
_TOKENS = re.compile(r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\"|[(),]", re.DOTALL)
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*-----|\Z)", re.DOTALL)

_URL = re.compile(r"\b([A-Za-z][\w+.-]*):(?:(thin|oci8?|THIN|OCI8?):)?(//|@)?")
# a host, and what may follow it: a path, parameters, another host, the end
_NO_USER = re.compile(
    r"[^/:@?#;,\s'\"]*(?::\d+)?"
    r"(?=[/?#\s'\")]|;(?:[\w .-]+=|[\s'\")]|\Z)|(?:,[\w.-]+(?::\d+)?)+(?:[/;?\s]|\Z)|\Z)"
)
# the same user before each of several hosts
_SAME_USER = re.compile(r"//([^,:@/\s]+:[^,@/\s]*@)[\w.-]+(?::\d+)?(?:,\1[\w.-]+(?::\d+)?)+")
_CONTAINERS = ("abfs", "abfss", "wasb", "wasbs")
_NO_PORT = ("s3", "s3a", "s3n", *_CONTAINERS)
_END = re.compile(r"[\s'\"<>`]")


def mask_secrets(event: dict[str, Any]) -> None:
    """Mask the secrets in all texts of an event, in place."""
    data = orjson.dumps(event, default=str).lower()
    if any(mark in data for mark in _MARKS):
        _mask_object(event)


def mask_text(text: str) -> str:
    """The text without the secrets that can be recognized in it."""
    data = text.lower().encode(errors="replace")
    if not any(mark in data for mark in _MARKS):
        return text
    if "@" in text:
        text = without_users(text)
    text = _PRIVATE_KEY.sub(MASK, text)
    if "crypt" in text.lower() or "hmac" in text.lower():
        text = _without_keys(text)
    text = _PARAMETER.sub(lambda found: str(found[found.lastindex or 1]) + MASK, text)
    text = _AFTER_NAME.sub(_masked_value, text)
    return _PHRASE.sub(lambda found: found["before"] + _in_quotes(found["value"]), text)


def without_users(text: str) -> str:
    """The text with URLs that have no user and password.

    A password may hold `@` and, in URLs of object stores, `/`: the user ends at the last `@` before the next
    space or quote, unless the part after `//` is a host.
    """
    text = _SAME_USER.sub(lambda found: found[0].replace(found[1], ""), text)
    made: list[str] = []
    at = 0
    for found in _URL.finditer(text):
        start = found.end()
        if start < at:
            continue
        scheme, oracle, slashes = found[1].lower(), found[2], found[3]
        if oracle is None and slashes != "//":
            continue
        if oracle is not None and slashes is not None:
            continue  # oracle:thin:@host, oracle:thin://host
        stop = _END.search(text, start)
        last = stop.start() if stop else len(text)
        if scheme in _CONTAINERS and (slash := text.find("/", start, last)) >= 0:
            last = slash  # before it: the container, and the account
        end = text.rfind("@", start, last)
        if end < 0 or (oracle is not None and "/" not in text[start:end]):
            continue
        if oracle is None and _is_host(scheme, text, start):
            continue
        kept = "@" if oracle is not None else ""
        if scheme in _CONTAINERS and ":" not in text[start:end]:
            continue  # the part before @ is a container
        made += [text[at:start], kept]
        at = end + 1
    return "".join([*made, text[at:]])


def _is_host(scheme: str, text: str, start: int) -> bool:
    found = _NO_USER.match(text, start)
    return found is not None and not (scheme in _NO_PORT and ":" in found[0])


def is_secret_name(name: str) -> bool:
    """Whether a setting, an option or a column of properties has the name of a secret."""
    return _SECRET_NAME.search(name) is not None


def _masked_value(found: re.Match[str]) -> str:
    if (found["value"] or "").startswith(MASK[:-1]):
        return found[0]
    if found["sign"] is None:
        return found["name"] + found["space"] + _in_quotes(found["literal"])
    if found["sign"].strip() == "," and found["name"][-1:] not in "'\"":
        return found[0]  # a list of columns and literals
    return found["name"] + found["sign"] + _in_quotes(found["value"])


def _in_quotes(value: str) -> str:
    for mark in ('\\"', "'", '"'):
        if value.startswith(mark):
            return f"{mark}{MASK}{mark}"
    return MASK


def _without_keys(text: str) -> str:
    """The text with a mask for the second argument of each cipher."""
    made: list[str] = []
    at = 0
    for call in _CIPHER.finditer(text):
        if call.end() < at:
            continue
        depth, comma = 0, -1
        end = len(text)
        for found in _TOKENS.finditer(text, call.end()):
            mark = found[0]
            if mark == "(":
                depth += 1
            elif mark == ")" and depth:
                depth -= 1
            elif mark == ")" or (mark == "," and not depth and comma >= 0):
                end = found.start()
                break
            elif mark == "," and not depth:
                comma = found.end()
        if comma >= 0:
            made += [text[at:comma], " ", _in_quotes(text[comma:end].strip())]
            at = end
    return "".join([*made, text[at:]])


def _mask_object(value: dict[str, Any]) -> None:
    for key in [each for each in value if not each.isidentifier() and mask_text(each) != each]:
        value[mask_text(key)] = value.pop(key)  # the name of a column
    label = value.get("name", value.get("key"))
    has_secret = isinstance(label, str) and is_secret_name(label)
    for key, each in value.items():
        if isinstance(each, str):
            if key in ("_producer", "_schemaURL", "runId"):
                continue
            is_secret = is_secret_name(key) or (has_secret and key == "value")
            value[key] = MASK if is_secret else mask_text(each)
        elif isinstance(each, dict):
            _mask_object(each)
        elif isinstance(each, list):
            _mask_list(each)


def _mask_list(values: list[Any]) -> None:
    for at, each in enumerate(values):
        if isinstance(each, str):
            values[at] = mask_text(each)
        elif isinstance(each, dict):
            _mask_object(each)
        elif isinstance(each, list):
            _mask_list(each)
