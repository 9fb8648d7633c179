"""Answers of the page: HTML and files, each with the headers that keep a browser from being misled (G12)."""

from __future__ import annotations

from collections.abc import Mapping

from headwater.gateway.responses import Response

__all__ = ["HEADERS", "HTML", "document", "download", "file", "redirect"]

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
