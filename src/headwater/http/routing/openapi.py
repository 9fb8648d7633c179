"""Generates the OpenAPI 3.1 description from the declared endpoints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from headwater import __version__
from headwater.http.response import ProblemBody
from headwater.http.routing.endpoint import ANY_ENDPOINT, Answer, Endpoint, Parameter

SECURITY_SCHEMES: Mapping[str, Any] = MappingProxyType(
    {
        "key": {"type": "http", "scheme": "bearer"},
        "admin": {"type": "http", "scheme": "bearer"},
        "token": {"type": "apiKey", "in": "header", "name": "X-Auth-Token"},
        "tokenQuery": {"type": "apiKey", "in": "query", "name": "token"},
    }
)
RETRY_AFTER = (429, 503, 507)
_NO_SCHEMAS: Mapping[str, Any] = MappingProxyType({})


def document(endpoints: Iterable[Endpoint], schemas: Mapping[str, Any] = _NO_SCHEMAS) -> dict[str, Any]:
    """Return the description; `schemas` are the named schemas that endpoints refer to by `$ref`."""
    endpoints = list(endpoints)
    named, components = _schemas(endpoints)
    clash = components.keys() & schemas.keys()
    assert not clash, f"schemas of the same name: {clash}"
    paths: dict[str, Any] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, named)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Headwater gateway", "version": __version__, "license": {"name": "Apache-2.0"}},
        "paths": paths,
        "components": {
            "schemas": {**components, **schemas},
            "securitySchemes": dict(SECURITY_SCHEMES),
        },
    }


Named = dict[tuple[str, Any], dict[str, Any]]  # by prefix and type: the schema, or a reference to it


def _schemas(endpoints: list[Endpoint]) -> tuple[Named, dict[str, Any]]:
    """Return the schema of each type that an endpoint names, and the components these refer to."""
    kinds: dict[str, list[Any]] = {"": [ProblemBody]}
    for endpoint in endpoints:
        used = [schema for answer in endpoint.answers.values() for schema in answer.schemas]
        used += endpoint.body.schemas if endpoint.body is not None else ()
        kinds.setdefault(endpoint.schema_prefix, []).extend(
            kind for kind in used if not isinstance(kind, dict)
        )
    named: Named = {}
    components: dict[str, Any] = {}
    for prefix, types in kinds.items():
        template = f"#/components/schemas/{prefix}{{name}}"
        schemas, found = msgspec.json.schema_components(types, ref_template=template)
        named |= {(prefix, kind): schema for kind, schema in zip(types, schemas, strict=True)}
        components |= {f"{prefix}{name}": schema for name, schema in found.items()}
    return named, components


def _operation(endpoint: Endpoint, named: Named) -> dict[str, Any]:
    answers = dict(endpoint.answers)
    for status, text in {**ANY_ENDPOINT, **endpoint.problems}.items():
        answers.setdefault(status, Answer(text, [ProblemBody]))
    operation: dict[str, Any] = {
        "operationId": endpoint.operation_id,
        "summary": endpoint.summary,
        "responses": {
            str(status): _response(status, answer, endpoint.schema_prefix, named)
            for status, answer in sorted(answers.items())
        },
    }
    parameters = [_parameter(each) for each in endpoint.parameters]
    if endpoint.body is not None:
        schema = _one_of(endpoint.body.schemas, endpoint.schema_prefix, named)
        content = {kind: {"schema": schema} for kind in endpoint.body.content_types}
        operation["requestBody"] = {"required": True, "content": content}
        parameters.append(
            {
                "name": "Content-Encoding",
                "in": "header",
                "required": False,
                "schema": {"type": "string", "enum": ["identity", "gzip", "x-gzip", "zstd"]},
            }
        )
    if parameters:
        operation["parameters"] = parameters
    if endpoint.security:
        operation["security"] = [{scheme: []} if scheme else {} for scheme in endpoint.security]
    return operation


def _response(status: int, answer: Answer, prefix: str, named: Named) -> dict[str, Any]:
    found: dict[str, Any] = {"description": answer.text}
    if answer.schemas:
        found["content"] = {answer.content_type: {"schema": _one_of(answer.schemas, prefix, named)}}
    elif status != 204:
        found["content"] = {answer.content_type: {}}
    if status in RETRY_AFTER:
        found["headers"] = {"Retry-After": {"schema": {"type": "integer"}}}
    return found


def _one_of(schemas: Iterable[Any], prefix: str, named: Named) -> dict[str, Any]:
    found = [
        each if isinstance(each, dict) else named["" if each is ProblemBody else prefix, each]
        for each in schemas
    ]
    return found[0] if len(found) == 1 else {"anyOf": found}


def _parameter(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": "path" if parameter.in_path else "query",
        "required": parameter.in_path or parameter.is_required,
        "schema": msgspec.json.schema(parameter.kind),
    }
