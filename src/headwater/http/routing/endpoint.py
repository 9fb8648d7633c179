"""Endpoints: path, parameters, body and answers, declared once.

The router serves an endpoint, `openapi.document` describes it, and `Endpoint.arguments` reads its parameters.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints
from urllib.parse import parse_qs

import msgspec

from headwater.http.request import Request
from headwater.http.response import JSON, Problem

MAX_PARAMETERS = 50
MAX_DIGITS = 9

# Answers that every endpoint may give, because the connection or the server gives them.
ANY_ENDPOINT: Mapping[int, str] = MappingProxyType(
    {
        400: "The request is not valid HTTP, or its body cannot be read.",
        408: "The request did not arrive in time.",
        413: "The body is larger than `gateway.max_body_bytes`.",
        417: "The `Expect` header is not `100-continue`.",
        431: "The request line and headers are larger than 64 KiB.",
        500: "The server failed; its log has the traceback.",
        503: "The server is busy or stopping, or has too many connections. `Retry-After` is set.",
        505: "The HTTP version is neither 1.0 nor 1.1.",
    }
)


class Answer(NamedTuple):
    """One answer of an endpoint. A schema is a type or JSON Schema; several are alternatives."""

    text: str
    schemas: Sequence[Any] = ()
    content_type: str = JSON


class Body(NamedTuple):
    """The body that an endpoint takes; its schemas are alternatives."""

    schemas: Sequence[Any]
    content_types: Sequence[str] = (JSON,)


class Parameter(NamedTuple):
    """A parameter in the path or the query. `parse` raises ValueError with the rest of a sentence."""

    name: str
    argument: str  # the name in Python
    in_path: bool
    kind: Any
    default: Any
    parse: Callable[[Sequence[str]], Any]

    @property
    def is_required(self) -> bool:
        return self.default is inspect.Parameter.empty


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """One method of one path. `{name}` in a path is one segment, which may hold encoded slashes.

    `security` names the schemes that grant access; an empty name means that access may be free. `problems`
    are the answers whose body is a Problem.
    """

    method: str
    path: str
    operation_id: str
    summary: str
    answers: Mapping[int, Answer]
    problems: Mapping[int, str] = field(default_factory=dict)
    parameters: tuple[Parameter, ...] = ()
    body: Body | None = None
    security: tuple[str, ...] = ()
    schema_prefix: str = ""  # before the names of its schemas, where they would clash with others

    @property
    def statuses(self) -> set[int]:
        """The statuses that are particular to this endpoint."""
        return {*self.answers, *self.problems}

    def arguments(self, request: Request) -> dict[str, Any]:
        """Return the parameters of a request by their names in Python; Problem 400 if one is unusable."""
        try:
            given = parse_qs(request.query, keep_blank_values=True, max_num_fields=MAX_PARAMETERS)
        except ValueError:
            raise _bad_request("There are too many query parameters.") from None
        found: dict[str, Any] = {}
        for parameter in self.parameters:
            if parameter.in_path:
                values: Sequence[str] | None = [request.path_parameters[parameter.name]]
            else:
                values = given.get(parameter.name)
            if values is None:
                if parameter.is_required:
                    raise _bad_request(f"The query parameter `{parameter.name}` is missing.")
                found[parameter.argument] = parameter.default
                continue
            try:
                found[parameter.argument] = parameter.parse(values)
            except ValueError as error:
                raise _bad_request(f"`{parameter.name}` {error}.") from None
        return found


def endpoint_of(
    function: Callable[..., Any],
    method: str,
    path: str,
    *,
    answer: str,
    operation_id: str,
    problems: Mapping[int, str],
    security: tuple[str, ...],
    camel_case: bool = False,
    schema_prefix: str = "",
) -> Endpoint:
    """Declare an endpoint by a function: its parameters after the first, its return type, its docstring."""
    returned = get_type_hints(function, include_extras=True)["return"]
    summary = (inspect.getdoc(function) or "").partition("\n\n")[0]
    return Endpoint(
        method=method,
        path=path,
        operation_id=operation_id,
        summary=" ".join(summary.split()),
        answers={200: Answer(answer, [] if returned is Any else [returned])},
        problems=problems,
        parameters=parameters_of(function, path, camel_case=camel_case),
        security=security,
        schema_prefix=schema_prefix,
    )


def parameters_of(
    function: Callable[..., Any], path: str, *, camel_case: bool = False
) -> tuple[Parameter, ...]:
    """Return the parameters of a function after the first as those of an endpoint.

    Understood are str, bool, `Annotated[int, msgspec.Meta(ge=…, le=…)]`, Literal of strings, and a tuple of
    such a Literal for a parameter that may be repeated. A trailing underscore is not part of the name.
    """
    hints = get_type_hints(function, include_extras=True)
    found = []
    for argument, declared in list(inspect.signature(function).parameters.items())[1:]:
        name = argument.rstrip("_")
        if camel_case:
            first, *others = name.split("_")
            name = first + "".join(other.title() for other in others)
        kind, in_path = hints[argument], f"{{{name}}}" in path
        found.append(Parameter(name, argument, in_path, kind, declared.default, _parser(kind)))
    return tuple(found)


def _parser(kind: Any) -> Callable[[Sequence[str]], Any]:
    if kind is str:
        return lambda values: values[-1]
    if kind is bool:
        return _flag
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated and arguments[0] is int:
        meta = next(each for each in arguments if isinstance(each, msgspec.Meta))
        assert meta.ge is not None
        assert meta.le is not None
        return _number(int(meta.ge), int(meta.le))
    if origin is Literal:
        return lambda values: _words(values[-1:], arguments)[0]
    if origin is tuple and get_origin(arguments[0]) is Literal:
        return lambda values: _words(values, get_args(arguments[0]))
    raise TypeError(f"a parameter cannot be {kind}")


def _flag(values: Sequence[str]) -> bool:
    text = values[-1].lower()
    if text not in ("true", "false"):
        raise ValueError("must be `true` or `false`")
    return text == "true"


def _number(least: int, largest: int) -> Callable[[Sequence[str]], int]:
    def parse(values: Sequence[str]) -> int:
        text = values[-1]
        is_number = text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS
        if not is_number or not least <= int(text) <= largest:
            raise ValueError(f"must be a whole number from {least} to {largest}")
        return int(text)

    return parse


def _words(values: Sequence[str], known: tuple[str, ...]) -> tuple[str, ...]:
    if not set(values) <= set(known):
        raise ValueError(f"must be one of {', '.join(known)}")
    return tuple(values)


def _bad_request(text: str) -> Problem:
    return Problem(400, "bad_request", text, hint="See the parameters in docs/http.md or /openapi.json.")
