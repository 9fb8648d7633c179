"""Resolves a name, an alias, or the text that a person typed.

Names may hold any separator, so all ways to split a text are tried; each takes one lookup, because ids are
computed from names (`store.ids`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import apsw

from headwater.errors import HeadwaterError
from headwater.graph.query.search import matching_ids
from headwater.graph.store.ids import Kind, dataset_id, field_id, job_id
from headwater.log.queue.sqlite import select

SEPARATORS = "/:. #"
SHOWN_CHARACTERS = 200  # of a name, in a message


_HINT = "Search for a part of the name."


class NotFound(HeadwaterError):
    """The graph has no node of this name."""


def _quoted(text: str) -> str:
    return f"`{text}`" if len(text) <= SHOWN_CHARACTERS else f"`{text[:SHOWN_CHARACTERS]}…`"


def find_dataset(connection: apsw.Connection, namespace: str, name: str) -> int:
    """The id of the dataset that has this name or alias."""
    rows = select(connection, "SELECT dataset FROM dataset_names WHERE id = ?", dataset_id(namespace, name))
    if not rows:
        raise NotFound(
            f"No dataset is called {_quoted(name)} in the namespace {_quoted(namespace)}.", hint=_HINT
        )
    return int(rows[0][0])


def find_job(connection: apsw.Connection, namespace: str, name: str) -> int:
    """The id of the job of this name."""
    id = job_id(namespace, name)
    if not select(connection, "SELECT 1 FROM jobs WHERE id = ?", id):
        raise NotFound(f"No job is called {_quoted(name)} in the namespace {_quoted(namespace)}.", hint=_HINT)
    return id


def find_column(connection: apsw.Connection, dataset: int, column: str) -> int:
    """The id of a field that one of the dataset's names has."""
    if not has_column(connection, dataset, column):
        raise NotFound(f"The dataset has no column {column}.", hint="The dataset's details list its columns.")
    return field_id(column)


def has_column(connection: apsw.Connection, dataset: int, column: str) -> bool:
    """Whether one of the dataset's names has this field."""
    query = (  # not by the field: a million datasets may have a column of this name
        "SELECT 1 FROM dataset_names n CROSS JOIN columns c ON c.name = n.id AND c.field = ?2"
        " WHERE n.dataset = ?1"
    )
    return bool(select(connection, query, dataset, field_id(column)))


def _splits(text: str) -> Iterator[tuple[str, str]]:
    """All ways to split a text into a namespace and a name, with or without a separator between them."""
    for place, character in enumerate(text):
        if character in SEPARATORS:
            yield text[:place], text[place + 1 :]
            yield text[:place], text[place:]
            yield text[: place + 1], text[place + 1 :]


def resolve(connection: apsw.Connection, text: str) -> tuple[int, str | None]:
    """The dataset, and the column if there is one, that a typed text stands for.

    The whole text is tried as a dataset, then the text before each dot as a dataset and the rest as its
    column. A dataset may be given by its name, by namespace and name, or by the end of its name.
    """
    exact = _exact(connection, text)
    if len(exact) == 1:
        return exact.pop(), None
    if not exact:
        dots = [place for place, character in enumerate(text) if character == "."]
        for place in reversed(dots):
            owners = _with_column(connection, _exact(connection, text[:place]), text[place + 1 :])
            if len(owners) == 1:
                return owners.pop(), text[place + 1 :]
            exact |= owners
        for end, column in [(text, None), *((text[:place], text[place + 1 :]) for place in reversed(dots))]:
            found = _with_suffix(connection, end)
            if column is not None:
                found = _with_column(connection, found, column)
            if len(found) == 1:
                return found.pop(), column
            exact |= found
    if not exact:
        raise NotFound(
            f"Nothing in the graph is called {_quoted(text)}.",
            hint="Run `headwater lineage search` with a part of the name.",
        )
    raise _ambiguous(connection, f"{len(exact)} datasets match {_quoted(text)}.", exact)


def resolve_name(connection: apsw.Connection, text: str) -> int:
    """The one name of a dataset that a typed text is, with or without its namespace."""
    rows = select(connection, "SELECT id FROM dataset_names WHERE name = ? LIMIT 50", text)
    query = "SELECT id FROM dataset_names WHERE id = ?"
    for pair in _splits(text):
        rows += select(connection, query, dataset_id(*pair))
    ids = {int(id) for (id,) in rows}
    if len(ids) == 1:
        return ids.pop()
    if not ids:
        raise NotFound(f"No name of a dataset is {_quoted(text)}.", hint=_HINT)
    raise _ambiguous(connection, f"{len(ids)} names are {_quoted(text)}.", ids)


def _ambiguous(connection: apsw.Connection, text: str, ids: Iterable[int]) -> NotFound:
    query = "SELECT namespace, name FROM dataset_names WHERE id = ?"
    some = sorted(" ".join(pair) for id in list(ids)[:10] for pair in select(connection, query, id))
    return NotFound(text, hint="Write the namespace before the name: " + "; ".join(some))


def _exact(connection: apsw.Connection, text: str) -> set[int]:
    rows = select(connection, "SELECT DISTINCT dataset FROM dataset_names WHERE name = ? LIMIT 50", text)
    query = "SELECT dataset FROM dataset_names WHERE id = ?"
    for pair in _splits(text):
        rows += select(connection, query, dataset_id(*pair))
    return {int(dataset) for (dataset,) in rows}


def _with_suffix(connection: apsw.Connection, text: str) -> set[int]:
    """Datasets with a name that ends with the text, after a separator."""
    found: set[int] = set()
    for id in matching_ids(connection, text, Kind.DATASET):
        for dataset, name in select(connection, "SELECT dataset, name FROM dataset_names WHERE id = ?", id):
            before, whole, _ = name.rpartition(text)
            if whole and name.endswith(text) and (not before or before[-1] in SEPARATORS):
                found.add(int(dataset))
    return found


def _with_column(connection: apsw.Connection, datasets: Iterable[int], column: str) -> set[int]:
    return {dataset for dataset in datasets if has_column(connection, dataset, column)}
