"""Answers: what goes back over the wire, and the one form that every error has.

An error body always says what failed, whether trying again helps, and what to do next:
`{"error": code, "message": …, "hint": …, "retryable": …, "violations": […]}`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus

import orjson

from headwater.errors import HeadwaterError, LogFull
from headwater.gateway.openlineage.validator import Violation

__all__ = ["JSON", "Problem", "Response", "problem_of"]

JSON = "application/json"
_NO_HEADERS: Mapping[str, str] = {}
_REASONS = {status.value: status.phrase for status in HTTPStatus}


class Response:
    """An answer that may be given to any number of requests: the bytes are built once.

    Only the date, HEAD and the fate of the connection differ from one request to the next.
    """

    __slots__ = ("_after_date", "_before_date", "_plain", "body", "close", "headers", "status")

    def __init__(
        self,
        status: int,
        body: bytes = b"",
        *,
        content_type: str = JSON,
        headers: Mapping[str, str] = _NO_HEADERS,
        close: bool = False,
        streamed: bool = False,
    ) -> None:
        self.status = status
        self.body = body
        self.headers = headers
        self.close = close
        lines = [f"{name}: {value}" for name, value in headers.items()]
        if body or streamed:
            lines.append(f"Content-Type: {content_type}")
        if streamed:
            lines.append("Transfer-Encoding: chunked")
        elif status != HTTPStatus.NO_CONTENT:
            lines.append(f"Content-Length: {len(body)}")
        self._before_date = f"HTTP/1.1 {status} {_REASONS.get(status, 'Unknown')}\r\nDate: ".encode("latin-1")
        self._after_date = "".join(f"\r\n{line}" for line in lines).encode("latin-1")
        self._plain = (b"", b"")  # a date, and the bytes with it

    def plain(self, date: bytes) -> bytes:
        """The bytes for the common case: HTTP/1.1, not HEAD, the connection stays open."""
        if self._plain[0] is not date:
            self._plain = (
                date,
                b"%b%b%b\r\n\r\n%b" % (self._before_date, date, self._after_date, self.body),
            )
        return self._plain[1]

    def encode(self, date: bytes, connection: bytes, *, with_body: bool) -> bytes:
        """The bytes with a `Connection` header, `close` or `keep-alive`; without the body for HEAD."""
        head = b"%b%b%b\r\nConnection: %b\r\n\r\n" % (self._before_date, date, self._after_date, connection)
        return head + self.body if with_body else head


class Problem(HeadwaterError):
    """Why a request is not served: raised anywhere below a route, answered once by the application."""

    def __init__(
        self,
        status: int,
        code: str,
        text: str,
        *,
        hint: str,
        retryable: bool = False,
        violations: Sequence[Violation] = (),
        headers: Mapping[str, str] = _NO_HEADERS,
        close: bool = False,
    ) -> None:
        super().__init__(text, hint=hint)
        self.status = status
        self.code = code
        self.retryable = retryable
        self.violations = violations
        self.headers = headers
        self.close = close

    def response(self) -> Response:
        """The answer that tells it."""
        content: dict[str, object] = {
            "error": self.code,
            "message": self.text,
            "hint": self.hint,
            "retryable": self.retryable,
        }
        if self.violations:
            content["violations"] = [
                {"path": each.path, "reason": each.reason, "rule": each.rule} for each in self.violations
            ]
        return Response(self.status, orjson.dumps(content), headers=self.headers, close=self.close)


def problem_of(error: HeadwaterError) -> Problem:
    """The problem that an error of the log amounts to: 507 when the disk is full, else 503 (G9)."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, LogFull):
        return Problem(
            507,
            "disk_full",
            error.text,
            hint=error.hint or "Free space on the disk of the data folder, then send it again.",
            retryable=True,
            headers={"Retry-After": "10"},
        )
    return Problem(
        503,
        "log_unavailable",
        error.text,
        hint=error.hint or "Nothing was acknowledged. Send it again.",
        retryable=True,
        headers={"Retry-After": "1"},
    )
