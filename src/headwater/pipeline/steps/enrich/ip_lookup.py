"""`ip_lookup`: where an address is.

The country comes from the lists of the registries, which are in the package: where an address was
registered, not where it is used. A user's `.mmdb` file (`pipeline.city_database`), MaxMind's or DB-IP's,
is asked first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import iptocc
import maxminddb

from headwater.destinations.column_types import Kind
from headwater.errors import SettingsError
from headwater.network import read_address
from headwater.pipeline.spark.cluster_packages import local_path
from headwater.pipeline.steps.enrich.base import Enricher, Found
from headwater.settings import PipelineSettings


class IpLookup(Enricher):
    """An address, or a list of them separated by commas of which the first that is known counts."""

    fields: ClassVar[Mapping[str, Kind]] = {
        "continent": Kind.STRING,
        "country": Kind.STRING,
        "country_name": Kind.STRING,
        "region": Kind.STRING,
        "city": Kind.STRING,
        "zip": Kind.STRING,
        "latitude": Kind.FLOAT64,
        "longitude": Kind.FLOAT64,
        "autonomous_system_number": Kind.INT64,
        "autonomous_system_organization": Kind.STRING,
    }

    def __init__(self, settings: PipelineSettings) -> None:
        self._path = settings.city_database
        self._reader: maxminddb.Reader | None = None

    def open(self) -> None:
        if not self._path or self._reader is not None:
            return
        try:
            # read by pages as they are needed, which all workers share
            self._reader = maxminddb.open_database(local_path(self._path), maxminddb.MODE_AUTO)
        except (OSError, ValueError, maxminddb.InvalidDatabaseError) as error:
            raise SettingsError(
                [f"`pipeline.city_database`: {self._path} cannot be read as a .mmdb file: {error}"]
            ) from error

    def __getstate__(self) -> dict[str, Any]:
        return {"_path": self._path, "_reader": None}

    def lookup(self, values: Sequence[str]) -> list[Found]:
        self.open()
        # nearly all are plain addresses: those are found at once, and only the others are taken apart
        countries = iptocc.country_code(list(values))
        return [
            self._known(value, country) if country else self._first(value)
            for value, country in zip(values, countries, strict=True)
        ]

    def _first(self, value: str) -> Found:
        for part in value.split(","):
            address = _address(part)
            found = self._known(address, iptocc.country_code(address)) if address else None
            if found:
                return found
        return None

    def _known(self, address: str, country: str | None) -> Found:
        found = {}
        if self._reader is not None:
            try:
                found = _flat(self._reader.get(address))
            except (ValueError, maxminddb.InvalidDatabaseError):
                pass  # an IPv6 address in a file of IPv4, or a damaged page of it
        if country and "country" not in found:
            found["country"] = country
        return found or None


def _address(text: str) -> str | None:
    """An address that the whole internet knows; None for others."""
    parsed = read_address(text)
    return str(parsed) if parsed is not None and parsed.is_global else None


def _flat(record: Any) -> dict[str, Any]:
    """The parts of a record of a city, country or ASN file that we have fields for."""
    if not isinstance(record, dict):
        return {}

    def at(*path: str | int) -> Any:
        node: Any = record
        for step in path:
            try:
                node = node[step]
            except (KeyError, IndexError, TypeError):
                return None
        return node

    found = {
        "continent": at("continent", "code"),
        "country": at("country", "iso_code"),
        "country_name": at("country", "names", "en"),
        "region": at("subdivisions", 0, "iso_code") or at("subdivisions", 0, "names", "en"),
        "city": at("city", "names", "en"),
        "zip": at("postal", "code"),
        "latitude": at("location", "latitude"),
        "longitude": at("location", "longitude"),
        "autonomous_system_number": at("autonomous_system_number"),
        "autonomous_system_organization": at("autonomous_system_organization"),
    }
    return {name: value for name, value in found.items() if value is not None}
