"""Jinja templates, static files and responses. All values are escaped: event text is hostile (G12)."""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import markupsafe
import msgspec
import orjson

from headwater.http.response import Response
from headwater.page.urls import PATHS, link

HTML = "text/html; charset=utf-8"

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)

# Not `no-referrer`: it makes browsers send `Origin: null`, which does not identify our forms.
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}

NO_STORE_HEADERS: Mapping[str, str] = {**HEADERS, "Cache-Control": "no-store"}

# The path of a static file changes with its content.
IMMUTABLE_HEADERS: Mapping[str, str] = {**HEADERS, "Cache-Control": "public, max-age=31536000, immutable"}


MIN_COMPRESSED = 1_400  # bytes: a smaller answer fits one packet as it is


def document(status: int, text: str, *, accepted: str = "") -> Response:
    """A response with a page, compressed if the client accepts it (`Accept-Encoding`).

    Its length reveals nothing: a page has no secret.
    """
    body = text.encode("utf-8", "replace")
    headers = {**NO_STORE_HEADERS, "Vary": "Accept-Encoding"}
    if len(body) >= MIN_COMPRESSED and _ACCEPTS_GZIP.search(accepted):
        body = gzip.compress(body, 4, mtime=0)
        headers["Content-Encoding"] = "gzip"
    return Response(status, body, content_type=HTML, headers=headers)


def redirect(address: str, headers: Mapping[str, str] | None = None) -> Response:
    """A redirect to another page, also after a form."""
    return Response(303, headers={**NO_STORE_HEADERS, "Location": address, **(headers or {})})


HERE = Path(__file__).parent

_ACCEPTS_GZIP = re.compile(r"(?:^|[,\s])(?:gzip|\*)\s*(?:,|\Z|;\s*q=(?:1|0\.0*[1-9]))", re.IGNORECASE)

TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

# Characters that XML cannot hold, and those that change the direction of text.
_UNSAFE_CHARACTERS = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


def strip_control_characters(text: object) -> str:
    """The text with unsafe characters replaced."""
    return _UNSAFE_CHARACTERS.sub("\N{REPLACEMENT CHARACTER}", str(text))


def ellipsis(text: str, limit: int) -> str:
    """The text in at most `limit` characters, its middle cut."""
    text = strip_control_characters(text)
    if len(text) <= limit:
        return text
    tail = (limit - 1) // 2
    return f"{text[: limit - 1 - tail]}…{text[len(text) - tail :]}"


def last_segment(name: str) -> str:
    """The last segment of a path; the whole name if it is no path."""
    parts = [part for part in name.split("/") if part]
    return parts[-1] if parts else name


def parent_path(namespace: str, name: str) -> str:
    """Namespace and name without the last segment."""
    before = name.rstrip("/").removesuffix(last_segment(name)).rstrip("/")
    return f"{namespace} {before}".strip() if before else namespace


def pretty(value: object, limit: int = 200_000) -> str:
    """Indented JSON; other texts unchanged."""
    raw = bytes(value) if isinstance(value, msgspec.Raw) else value
    if isinstance(raw, bytes):
        try:
            text = orjson.dumps(orjson.loads(raw), option=orjson.OPT_INDENT_2).decode()
        except orjson.JSONDecodeError:
            text = raw.decode(errors="replace")
    else:
        text = orjson.dumps(raw, option=orjson.OPT_INDENT_2, default=str).decode()
    text = strip_control_characters(text)
    return text if len(text) <= limit else f"{text[:limit]}\n… {len(text) - limit:,} more characters"


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if float(value).is_integer() or value >= 100 else f"{value:,.1f}"


def _bytes(count: float | None) -> str:
    if count is None:
        return "–"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    if 0 < seconds < 0.0995:
        return f"{seconds * 1000:.0f} ms"
    for limit, unit, size in ((120, "s", 1), (7200, "min", 60), (172_800, "h", 3600)):
        if seconds < limit:
            value = seconds / size
            return (
                f"{value:.1f} {unit}" if 0 < value < 9.95 and round(value, 1) % 1 else f"{value:.0f} {unit}"
            )
    return f"{seconds / 86_400:.1f} days"


def _moment(at: float | str | None) -> datetime | None:
    if at in (None, "", 0):
        return None
    try:
        return (
            datetime.fromtimestamp(at, UTC)
            if isinstance(at, (int, float))
            else datetime.fromisoformat(str(at))
        )
    except (ValueError, OverflowError, OSError):
        return None


def _time(at: float | str | None) -> str:
    """UTC to the second; other offsets of an event's time are converted."""
    moment = _moment(at)
    if moment is None:
        return "–"
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def _iso(at: float | str | None) -> str:
    moment = _moment(at)
    return moment.isoformat() if moment else ""


def _static_files() -> dict[str, bytes]:
    folder = HERE / "static"
    files = (path for path in sorted(folder.rglob("*")) if path.suffix in TYPES)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@cache
def assets() -> dict[str, tuple[str, bytes]]:
    """Content type and content of the static files by their paths.

    A digest of all files is part of each path, so scripts that import each other change together.
    """
    files = _static_files()
    digest = hashlib.sha256(b"".join(files.values())).hexdigest()[:12]
    return {
        f"/static/{digest}/{name}": (TYPES[Path(name).suffix], content) for name, content in files.items()
    }


@cache
def _asset(name: str) -> str:
    return next(path for path in assets() if path.endswith(f"/{name}"))


@cache
def _export_styles() -> str:
    """The styles of an exported drawing: light colours without variables, which few programs support."""
    palette, graph = (_static_files()[name].decode() for name in ("palette.css", "graph.css"))
    palette = re.sub(r"light-dark\((.+?), #.+?\)", r"\1", palette)
    colours = dict(re.findall(r"(--[a-z-]+): ([^;]+);", palette))
    return re.sub(r"var\((--[a-z-]+)\)", lambda match: colours[match[1]], graph)


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"),
        autoescape=True,
        auto_reload=False,  # else each page reads the times of its files
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: (
            strip_control_characters(value)
            if isinstance(value, str) and not hasattr(value, "__html__")
            else value
        ),
    )
    environment.filters |= {
        "bytes": _bytes,
        "exact": markupsafe.escape,  # for values that forms send back: escaped, but otherwise unchanged
        "ellipsis": ellipsis,
        "iso": _iso,
        "number": _number,
        "pretty": pretty,
        "seconds": _seconds,
        "last_segment": last_segment,
        "time": _time,
    }
    environment.globals |= {
        "asset": _asset,
        "link": link,
        "paths": PATHS,
        "parent_path": parent_path,
        "export_styles": _export_styles,
    }
    return environment


def render(template: str, **values: Any) -> str:
    """The text of a template with these values."""
    return _environment().get_template(template).render(**values)
