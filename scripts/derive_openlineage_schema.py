"""Derive the gateway's OpenLineage schema from openlineage-python's generated classes.

    python scripts/derive_openlineage_schema.py            writes gateway/openlineage_schema.json
    python scripts/derive_openlineage_schema.py --check    writes nothing; exits 1 when that file is stale

The client costs 640 ms and 20 MB at import, so the sidecar ships the derived file and never imports it.
What the classes do not say is in the tables at the top; docs/openlineage.md says when to change them.
"""

from __future__ import annotations

import argparse
import enum
import importlib
import inspect
import json
import pkgutil
import sys
import types
import typing
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any

import attr
import openlineage.client.generated as generated

Schema = dict[str, Any]

TARGET = Path(__file__).resolve().parent.parent / "src/headwater/gateway/openlineage_schema.json"

# Which class checks which facet; neither keys nor containers are in the classes.
FACETS: tuple[tuple[str, str, str], ...] = (
    ("RunFacets", "environmentVariables", "EnvironmentVariablesRunFacet"),
    ("RunFacets", "errorMessage", "ErrorMessageRunFacet"),
    ("RunFacets", "executionParameters", "ExecutionParametersRunFacet"),
    ("RunFacets", "externalQuery", "ExternalQueryRunFacet"),
    ("RunFacets", "extractionError", "ExtractionErrorRunFacet"),
    ("RunFacets", "jobDependencies", "JobDependenciesRunFacet"),
    ("RunFacets", "nominalTime", "NominalTimeRunFacet"),
    ("RunFacets", "parent", "ParentRunFacet"),
    ("RunFacets", "processing_engine", "ProcessingEngineRunFacet"),
    ("RunFacets", "tags", "TagsRunFacet"),
    ("RunFacets", "test", "TestRunFacet"),
    ("JobFacets", "documentation", "DocumentationJobFacet"),
    ("JobFacets", "jobType", "JobTypeJobFacet"),
    ("JobFacets", "lineage", "LineageJobFacet"),
    ("JobFacets", "ownership", "OwnershipJobFacet"),
    ("JobFacets", "sourceCode", "SourceCodeJobFacet"),
    ("JobFacets", "sourceCodeLocation", "SourceCodeLocationJobFacet"),
    ("JobFacets", "sql", "SQLJobFacet"),
    ("JobFacets", "tags", "TagsJobFacet"),
    ("DatasetFacets", "catalog", "CatalogDatasetFacet"),
    ("DatasetFacets", "columnLineage", "ColumnLineageDatasetFacet"),
    ("DatasetFacets", "dataQualityMetrics", "DataQualityMetricsDatasetFacet"),
    ("DatasetFacets", "dataSource", "DatasourceDatasetFacet"),
    ("DatasetFacets", "datasetType", "DatasetTypeDatasetFacet"),
    ("DatasetFacets", "documentation", "DocumentationDatasetFacet"),
    ("DatasetFacets", "hierarchy", "HierarchyDatasetFacet"),
    ("DatasetFacets", "lifecycleStateChange", "LifecycleStateChangeDatasetFacet"),
    ("DatasetFacets", "lineage", "LineageDatasetFacet"),
    ("DatasetFacets", "ownership", "OwnershipDatasetFacet"),
    ("DatasetFacets", "schema", "SchemaDatasetFacet"),
    ("DatasetFacets", "storage", "StorageDatasetFacet"),
    ("DatasetFacets", "symlinks", "SymlinksDatasetFacet"),
    ("DatasetFacets", "tags", "TagsDatasetFacet"),
    ("DatasetFacets", "version", "DatasetVersionDatasetFacet"),
    ("InputDatasetFacets", "dataQualityAssertions", "DataQualityAssertionsDatasetFacet"),
    ("InputDatasetFacets", "dataQualityMetrics", "DataQualityMetricsInputDatasetFacet"),
    ("InputDatasetFacets", "inputStatistics", "InputStatisticsInputDatasetFacet"),
    ("InputDatasetFacets", "subset", "InputSubsetInputDatasetFacet"),
    ("OutputDatasetFacets", "outputStatistics", "OutputStatisticsOutputDatasetFacet"),
    ("OutputDatasetFacets", "subset", "OutputSubsetOutputDatasetFacet"),
)

# The class of a facet that is not in the table, per container: only its base fields are checked.
CONTAINERS = {
    "RunFacets": "RunFacet",
    "JobFacets": "JobFacet",
    "DatasetFacets": "DatasetFacet",
    "InputDatasetFacets": "InputDatasetFacet",
    "OutputDatasetFacets": "OutputDatasetFacet",
}

# Corrections: what the official schemas demand and the classes have lost. The client fills in FILLED_IN, the
# schema requires them; an event with all keys of EXCLUDED is of another kind.
FILLED_IN = {"producer", "schemaURL", "_producer", "_schemaURL"}
CLOSED = {"ExecutionParameter"}
MINIMUM = {("EmissionPattern", "windowDuration"): 1}
TOGETHER = {"LineageJobEntry": ("name", "namespace"), "LineageJobInput": ("name", "namespace")}
EXCLUDED = {"JobEvent": ["run"], "DatasetEvent": ["job", "run"]}

FORMATS = {"UUID(": "uuid", "urlparse(": "uri", "isoparse(": "date-time"}
SCALARS: dict[object, str] = {str: "string", bool: "boolean", int: "integer", float: "number"}
EVENTS = ("RunEvent", "DatasetEvent", "JobEvent")


class Derivation:
    """Walks the classes that an event can reach and collects one definition for each."""

    def __init__(self) -> None:
        classes = [
            cls
            for module in pkgutil.iter_modules(generated.__path__, generated.__name__ + ".")
            for cls in vars(importlib.import_module(module.name)).values()
            if inspect.isclass(cls) and cls.__module__ == module.name and attr.has(cls)
        ]
        shared = Counter(cls.__name__ for cls in classes)
        # parent_run has a Run and a Job of its own, so a name that is not unique carries its module
        self._names = {
            cls: f"{cls.__module__.rpartition('.')[2]}.{cls.__name__}"
            if shared[cls.__name__] > 1 and not cls.__module__.endswith(".base")
            else cls.__name__
            for cls in classes
        }
        self._classes = {name: cls for cls, name in self._names.items()}
        self.definitions: dict[str, Schema] = {}

    def define(self, name: str) -> Schema:
        """A reference to the definition of the class `name`, which is derived on first use."""
        if name not in self.definitions:
            self.definitions[name] = {}  # before its fields: SchemaDatasetFacetFields contains itself
            self.definitions[name] = self._definition(self._classes[name], name)
        return {"$ref": f"#/$defs/{name}"}

    def define_containers(self) -> None:
        """One definition per facets object: standard facets by key, base fields for every other."""
        for container, fallback in CONTAINERS.items():
            self.definitions[container] = {
                "type": "object",
                "properties": {key: self.define(cls) for where, key, cls in FACETS if where == container},
                "additionalProperties": self.define(fallback),
            }

    def _definition(self, cls: type[Any], name: str) -> Schema:
        hints = typing.get_type_hints(cls)
        properties: dict[str, Schema] = {}
        required: list[str] = []
        for field in attr.fields(cls):
            discriminator = type(field.default) is str and field.name not in FILLED_IN
            schema = {"const": field.default} if discriminator else self._schema(hints[field.name], cls)
            if field.validator is not None:
                source = inspect.getsource(field.validator)
                for mark, known in FORMATS.items():
                    if mark in source:
                        schema["format"] = known
            if (name, field.name) in MINIMUM:
                schema["minimum"] = MINIMUM[name, field.name]
            if field.default is attr.NOTHING or discriminator or field.name in FILLED_IN:
                required.append(field.name)
            properties[field.name] = schema
        definition: Schema = {"type": "object", "properties": properties}
        if required:
            definition["required"] = sorted(required)
        if name in CLOSED:
            definition["additionalProperties"] = False
        if name in TOGETHER:
            first, second = TOGETHER[name]
            definition["dependentRequired"] = {first: [second], second: [first]}
        if name in EXCLUDED:
            definition["not"] = {"required": EXCLUDED[name]}
        if "_producer" in properties:
            _, _, versioned = cls._get_schema().partition("/facets/")
            if versioned:
                definition["$comment"] = versioned.split("/")[0]
        return definition

    def _schema(self, hint: Any, owner: type[Any]) -> Schema:
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if origin in (typing.Union, types.UnionType):
            choices = [choice for choice in arguments if choice is not type(None)]
            return self._schema(choices[0], owner) if len(choices) == 1 else self._union(choices)
        if origin is typing.Literal:
            return {"enum": list(arguments)}
        if origin is list:
            return {"type": "array", "items": self._schema(arguments[0], owner)}
        if origin is dict:
            return self._mapping(arguments[1], owner)
        if hint in SCALARS:
            return {"type": SCALARS[hint]}
        if inspect.isclass(hint) and issubclass(hint, enum.Enum):
            return {"enum": [member.value for member in hint]}
        return self.define(self._names[hint])

    def _mapping(self, value: Any, owner: type[Any]) -> Schema:
        container = f"{value.__name__}s" if inspect.isclass(value) else ""
        if container in CONTAINERS and owner.__module__.endswith(".base"):
            return {"$ref": f"#/$defs/{container}"}
        if value is Any:
            return {"type": "object"}
        return {"type": "object", "additionalProperties": self._schema(value, owner)}

    def _union(self, choices: list[type[Any]]) -> Schema:
        """A choice by `type`: as if/then, so that an error names the field and not the choice."""
        name = "-or-".join(sorted(self._names[choice] for choice in choices))
        if name not in self.definitions:
            self.definitions[name] = {}
            branches = {self._tag(choice): self.define(self._names[choice]) for choice in choices}
            self.definitions[name] = {
                "type": "object",
                "properties": {"type": {"enum": sorted(branches)}},
                "required": ["type"],
                "allOf": [
                    {"if": {"properties": {"type": {"const": tag}}, "required": ["type"]}, "then": branch}
                    for tag, branch in sorted(branches.items())
                ],
            }
        return {"$ref": f"#/$defs/{name}"}

    def _tag(self, choice: type[Any]) -> str:
        field = attr.fields_dict(choice)["type"]
        if field.default is not attr.NOTHING:
            return str(field.default)
        return str(typing.get_args(typing.get_type_hints(choice)["type"])[0])


def derive() -> str:
    """The text of the schema file: one definition a line, sorted, so that a refresh reads well as a diff."""
    derivation = Derivation()
    derivation.define_containers()
    root = {
        "$comment": f"derived from openlineage-python {version('openlineage-python')}",
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "oneOf": [derivation.define(name) for name in EVENTS],
    }
    derivation.define("BaseEvent")
    lines = [f"{dump(name)}:{dump(schema)}" for name, schema in sorted(derivation.definitions.items())]
    head = [f"{dump(key)}:{dump(value)}" for key, value in root.items()]
    return "{\n" + ",\n".join(head) + ',\n"$defs":{\n' + ",\n".join(lines) + "\n}}\n"


def dump(value: Any) -> str:
    """Compact JSON with sorted keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def main() -> int:
    """Write or check the schema file; the exit status is 1 when --check finds it stale."""
    parser = argparse.ArgumentParser(description="Derive the OpenLineage schema of the gateway.")
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 when the file is stale")
    check = parser.parse_args().check
    text = derive()
    if TARGET.exists() and TARGET.read_text() == text:
        print(f"{TARGET.name} is up to date.")
        return 0
    if check:
        print(
            f"{TARGET.name} differs from what openlineage-python {version('openlineage-python')} yields. "
            "Run `python scripts/derive_openlineage_schema.py` and read the diff before you commit it.",
            file=sys.stderr,
        )
        return 1
    TARGET.write_text(text)
    print(f"{TARGET.name} written, {len(text):,} characters.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
