"""Rendering: templates to text. Everything that is put into one is escaped: event text is hostile (G12)."""

from __future__ import annotations

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

__all__ = [
    "HEADERS",
    "HTML",
    "assets",
    "clean",
    "document",
    "download",
    "file",
    "fit",
    "place",
    "pretty",
    "redirect",
    "render",
    "short",
]


HTML = "text/html; charset=utf-8"


POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


# Not `no-referrer`: with it a form's origin is sent as "null", and ours could not be told from another's.
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


_FRESH = {"Cache-Control": "no-store"}


_KEPT = {"Cache-Control": "public, max-age=31536000, immutable"}  # the address changes with the content


def document(status: int, text: str, headers: Mapping[str, str] | None = None) -> Response:
    """A page."""
    content = text.encode("utf-8", "replace")
    return Response(status, content, content_type=HTML, headers={**HEADERS, **_FRESH, **(headers or {})})


def redirect(address: str, headers: Mapping[str, str] | None = None) -> Response:
    """On to another page of ours; after a form, too."""
    return Response(303, headers={**HEADERS, **_FRESH, "Location": address, **(headers or {})})


def download(content: bytes, content_type: str, name: str) -> Response:
    """Something to be kept, not shown here."""
    disposition = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(200, content, content_type=content_type, headers={**HEADERS, **_FRESH, **disposition})


def file(content: bytes, content_type: str) -> Response:
    """A part of the page that never changes under its address."""
    return Response(200, content, content_type=content_type, headers={**HEADERS, **_KEPT})


HERE = Path(__file__).parent


TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


# What XML cannot hold, and what turns the direction of the text around it.
_ODD = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


def clean(text: object) -> str:
    """The text without characters that a file cannot hold or that would mislead the eye."""
    return _ODD.sub("\N{REPLACEMENT CHARACTER}", str(text))


def fit(text: str, most: int) -> str:
    """The text in so many characters, with its beginning and its end."""
    text = clean(text)
    if len(text) <= most:
        return text
    tail = (most - 1) // 2
    return f"{text[: most - 1 - tail]}…{text[len(text) - tail :]}"


def short(name: str) -> str:
    """The last part of a name that is a path; other names are whole."""
    parts = [part for part in name.split("/") if part]
    return parts[-1] if parts else name


def place(namespace: str, name: str) -> str:
    """What `short` leaves out of a dataset's name, for the second line."""
    before = name.rstrip("/").removesuffix(short(name)).rstrip("/")
    return f"{namespace} {before}".strip() if before else namespace


def pretty(value: object, most: int = 200_000) -> str:
    """JSON for people; other texts as they are."""
    raw = bytes(value) if isinstance(value, msgspec.Raw) else value
    if isinstance(raw, bytes):
        try:
            text = orjson.dumps(orjson.loads(raw), option=orjson.OPT_INDENT_2).decode()
        except orjson.JSONDecodeError:
            text = raw.decode(errors="replace")
    else:
        text = orjson.dumps(raw, option=orjson.OPT_INDENT_2, default=str).decode()
    text = clean(text)
    return text if len(text) <= most else f"{text[:most]}\n… {len(text) - most:,} more characters"


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
    if seconds < 0.0995:
        return f"{seconds * 1000:.0f} ms"
    for limit, unit, size in ((120, "s", 1), (7200, "min", 60), (172_800, "h", 3600)):
        if seconds < limit:
            value = seconds / size
            return f"{value:.1f} {unit}" if value < 10 else f"{value:.0f} {unit}"
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
    """UTC to the second."""
    moment = _moment(at)
    return f"{moment:%Y-%m-%d %H:%M:%S}" if moment else "–"


def _iso(at: float | str | None) -> str:
    moment = _moment(at)
    return moment.isoformat() if moment else ""


@cache
def assets() -> dict[str, tuple[str, bytes]]:
    """The files of the page by their paths: content type and content."""
    found = {}
    for path in sorted((HERE / "static").iterdir()):
        if path.suffix in TYPES:
            found[f"/static/{path.name}"] = (TYPES[path.suffix], path.read_bytes())
    return found


@cache
def _asset(name: str) -> str:
    # all files share one stamp: modules name each other without it, and must change together
    digest = hashlib.sha256(b"".join(content for _, content in assets().values())).hexdigest()
    return f"/static/{name}?v={digest[:12]}"


@cache
def _styles() -> str:
    """The styles of a drawing that stands alone: as in light, without variables, which few programs read."""
    page, graph = ((HERE / "static" / name).read_text(encoding="utf-8") for name in ("page.css", "graph.css"))
    colours = dict(re.findall(r"(--[a-z-]+): ([^;]+);", page[: page.index("}")]))
    return re.sub(r"var\((--[a-z-]+)\)", lambda match: colours[match[1]], graph)


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: (
            clean(value) if isinstance(value, str) and not hasattr(value, "__html__") else value
        ),
    )
    environment.filters |= {
        "bytes": _bytes,
        "exact": markupsafe.escape,  # for what is sent back to us: escaped, but not cleaned
        "fit": fit,
        "iso": _iso,
        "number": _number,
        "pretty": pretty,
        "seconds": _seconds,
        "short": short,
        "time": _time,
    }
    environment.globals |= {
        "asset": _asset,
        "link": link,
        "paths": PATHS,
        "place": place,
        "graph_styles": _styles,
    }
    return environment


def render(template: str, **values: Any) -> str:
    """The text of a template."""
    return _environment().get_template(template).render(**values)
