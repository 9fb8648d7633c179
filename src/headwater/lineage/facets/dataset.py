"""Facets of datasets, and datasets with their basic facets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headwater.lineage.extend.builders import DatasetBuilder
from headwater.lineage.facets.make import standard
from headwater.lineage.jvm.plan import Attribute
from headwater.lineage.naming.names import DatasetId, path_id, source_uri

Facet = dict[str, Any]
MAX_DEPTH = 20  # of nested types


def dataset(id: DatasetId, file_format: str = "", extra: Mapping[str, Facet] | None = None) -> DatasetBuilder:
    """A dataset with its data source and, if known, its file format."""
    made = DatasetBuilder(*id, {"dataSource": data_source(id.namespace)})
    if file_format:
        made.facets["storage"] = storage(id.namespace.partition(":")[0], file_format)
    made.facets.update(extra or {})
    return made


def file_dataset(path: str, file_format: str = "") -> DatasetBuilder:
    """A dataset at a path or URI."""
    return dataset(path_id(path), file_format)


def unknown_dataset(reason: str) -> DatasetBuilder:
    """A dataset without a name that is its own: it is not sent, and `extractionError` has the reason (G11).

    A name made of a class would be one dataset for all jobs that use the class.
    """
    made = DatasetBuilder("", "")
    made.unknown = reason
    return made


def add_symlink(found: DatasetBuilder, other: DatasetId, kind: str = "TABLE") -> None:
    """Add another name of the same data."""
    if other == found.id:
        return
    known = found.facets.setdefault("symlinks", symlinks(()))["identifiers"]
    entry = {"namespace": other.namespace, "name": other.name, "type": kind}
    if entry not in known:
        known.append(entry)


def schema(columns: Iterable[Attribute], names: Sequence[str] | None = None) -> Facet:
    """The columns with their types and nested fields; `names` replaces the column names, by position."""
    fields = [_field(column.name, column.type) for column in columns]
    if names is not None and len(names) == len(fields):
        for field, name in zip(fields, names, strict=True):
            field["name"] = name
    return standard("schema_dataset.SchemaDatasetFacet", fields=fields)


def schema_of_struct(struct: dict[str, Any]) -> Facet:
    """The same, from Spark's JSON of a struct type."""
    return standard("schema_dataset.SchemaDatasetFacet", fields=_fields(struct, 0))


def _fields(struct: dict[str, Any], depth: int) -> list[dict[str, Any]]:
    return [
        _field(str(each["name"]), each.get("type"), depth, (each.get("metadata") or {}).get("comment"))
        for each in struct.get("fields", ())
    ]


def _field(name: str, kind: Any, depth: int = 0, comment: str | None = None) -> dict[str, Any]:
    field: dict[str, Any] = {"name": name}
    if isinstance(kind, str):
        field["type"] = kind
    elif isinstance(kind, dict) and depth < MAX_DEPTH:
        field["type"] = str(kind.get("type", "unknown"))
        if field["type"] == "struct":
            field["fields"] = _fields(kind, depth + 1)
        elif field["type"] == "array":
            field["fields"] = [_field("_element", kind.get("elementType"), depth + 1)]
        elif field["type"] == "map":
            field["fields"] = [
                _field("key", kind.get("keyType"), depth + 1),
                _field("value", kind.get("valueType"), depth + 1),
            ]
    if comment:
        field["description"] = comment
    return field


def data_source(namespace: str) -> Facet:
    """The data source of a namespace."""
    return standard("datasource_dataset.DatasourceDatasetFacet", name=namespace, uri=source_uri(namespace))


def symlinks(others: Iterable[tuple[DatasetId, str]]) -> Facet:
    """Other names of the dataset with their type, TABLE or LOCATION."""
    identifiers = [{"namespace": id.namespace, "name": id.name, "type": kind} for id, kind in others]
    return standard("symlinks_dataset.SymlinksDatasetFacet", identifiers=identifiers)


def storage(layer: str, file_format: str | None = None) -> Facet:
    """The storage layer and the file format."""
    return standard("storage_dataset.StorageDatasetFacet", storageLayer=layer, fileFormat=file_format or None)


def catalog(
    framework: str, kind: str, name: str, *, metadata_uri: str | None = None, warehouse_uri: str | None = None
) -> Facet:
    """The catalog of the table."""
    return standard(
        "catalog_dataset.CatalogDatasetFacet",
        framework=framework,
        type=kind,
        name=name,
        metadataUri=metadata_uri or None,
        warehouseUri=warehouse_uri or None,
        source="spark",
    )


def version(text: str) -> Facet:
    """The version of the dataset that was read or replaced."""
    return standard("dataset_version_dataset.DatasetVersionDatasetFacet", datasetVersion=text)


def lifecycle(state: str, previous: DatasetId | None = None) -> Facet:
    """CREATE, DROP, ALTER, TRUNCATE, OVERWRITE, or RENAME with the previous name."""
    before = {"name": previous.name, "namespace": previous.namespace} if previous is not None else None
    return standard(
        "lifecycle_state_change_dataset.LifecycleStateChangeDatasetFacet",
        lifecycleStateChange=state,
        previousIdentifier=before,
    )


def documentation(text: str) -> Facet:
    """The comment of a table."""
    return standard("documentation_dataset.DocumentationDatasetFacet", description=text)


def ownership(owner: str) -> Facet:
    """The owner of the table in its catalog."""
    return standard("ownership_dataset.OwnershipDatasetFacet", owners=[{"name": owner, "type": "OWNER"}])


def dataset_type(kind: str, subtype: str | None = None) -> Facet:
    """VIEW, TOPIC, …: the type of a dataset that is not a table or a folder."""
    return standard("dataset_type_dataset.DatasetTypeDatasetFacet", datasetType=kind, subType=subtype)


def subset(locations: Iterable[str], role: str) -> Facet:
    """The parts of the dataset that were read or written: the paths before trimming."""
    condition = {"type": "location", "locations": sorted(locations)}
    if role == "input":
        return standard("base_subset_dataset.InputSubsetInputDatasetFacet", inputCondition=condition)
    return standard("base_subset_dataset.OutputSubsetOutputDatasetFacet", outputCondition=condition)
