"""The input and the result of a view: the query parameters, and a template with its values."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar
from urllib.parse import parse_qs

from headwater.http.request import Request
from headwater.http.response import Problem

MAX_PARAMETERS = 50

C = TypeVar("C", bound=str)


class View(NamedTuple):
    """A template and its values; `section` is the menu entry that the view belongs to."""

    template: str
    title: str
    section: str
    values: dict[str, Any]


class Parameters:
    """The query parameters of a request; Problem 400 for a missing or invalid one."""

    def __init__(self, request: Request, scheme: str = "http") -> None:
        self.address = f"{scheme}://{request.headers.get('host', '')}"
        try:
            self._values = parse_qs(request.query, keep_blank_values=True, max_num_fields=MAX_PARAMETERS)
        except ValueError:
            raise _bad("There are too many query parameters.") from None

    def get(self, name: str, default: str | None = None) -> str:
        """The text of a parameter; without a default it is required."""
        found = self._values.get(name)
        if found is None:
            if default is None:
                raise _bad(f"The query parameter `{name}` is missing.")
            return default
        return found[-1]

    def number(self, name: str, default: int, most: int) -> int:
        """A whole number from 0 to `most`."""
        text = self.get(name, str(default))
        if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) <= most):
            raise _bad(f"`{name}` must be a whole number from 0 to {most}.")
        return int(text)

    def choice(self, name: str, default: C, *others: C) -> C:
        """A parameter whose value is `default` or one of `others`."""
        text = self.get(name, default)
        for word in (default, *others):
            if text == word:
                return word
        raise _bad(f"`{name}` must be one of {', '.join((default, *others))}.")


def _bad(text: str) -> Problem:
    return Problem(400, "bad_request", text, hint="Follow the links of the page.")
