"""`ip_lookup`: the location of an IP address.

A user's `.mmdb` file (`pipeline.city_database`) of MaxMind, DB-IP or IPinfo has priority. Otherwise the
country comes from the registries' lists, which are in the package iptocc: where an address was registered,
not where it is used. With a file of the user's, iptocc need not be installed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import maxminddb

from headwater.destinations.column_types import Kind
from headwater.errors import ExtensionError, SettingsError
from headwater.pipeline.spark.cluster_packages import local_path
from headwater.pipeline.steps.enrich.base import Enricher, Found
from headwater.settings import PipelineSettings
from headwater.system.installation import package_command
from headwater.system.network import read_address

_PATHS: dict[str, tuple[str | int, ...]] = {
    "continent": ("continent", "code"),
    "country": ("country", "iso_code"),
    "country_name": ("country", "names", "en"),
    "region": ("subdivisions", 0, "iso_code"),
    "city": ("city", "names", "en"),
    "zip": ("postal", "code"),
    "latitude": ("location", "latitude"),
    "longitude": ("location", "longitude"),
    "autonomous_system_number": ("autonomous_system_number",),
    "autonomous_system_organization": ("autonomous_system_organization",),
}
"""Where a city, country or ASN file of MaxMind or DB-IP has a field."""
_FLAT_KEYS = {
    "continent": "continent_code",
    "country": "country_code",
    "country_name": "country",
    "autonomous_system_organization": "as_name",
}
"""Where a file of IPinfo Lite has a field; `country` is a name there, where others have an object."""
_NUMBERS = {"latitude": Kind.FLOAT64, "longitude": Kind.FLOAT64, "autonomous_system_number": Kind.INT64}


class IpLookup(Enricher):
    """Looks up an address, or the first known one of a list separated by commas."""

    fields: ClassVar[Mapping[str, Kind]] = {name: _NUMBERS.get(name, Kind.STRING) for name in _PATHS}

    def __init__(self, settings: PipelineSettings) -> None:
        self._path = settings.city_database
        self._reader: maxminddb.Reader | None = None
        self._country_code: Any = None

    def open(self) -> None:
        if self._country_code is None:
            self._country_code = _registries(is_needed=not self._path)
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
        return {"_path": self._path, "_reader": None, "_country_code": None}

    def lookup(self, values: Sequence[str]) -> list[Found]:
        self.open()
        # nearly all are plain addresses: those are found at once, and only the others are taken apart
        countries = self._country_code(list(values))
        return [
            self._known(value, country) if country else self._first(value)
            for value, country in zip(values, countries, strict=True)
        ]

    def _first(self, value: str) -> Found:
        for part in value.split(","):
            address = _address(part)
            found = self._known(address, self._country_code(address)) if address else None
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


def _registries(*, is_needed: bool) -> Any:
    """The function that returns the countries of addresses; one that knows none where iptocc is missing."""
    try:
        from iptocc import country_code
    except ImportError as error:
        if is_needed:
            raise ExtensionError(
                f"`ip_lookup` needs iptocc or `pipeline.city_database`: {error}.",
                hint=f"Run `{package_command('install', 'iptocc')}`.",
            ) from error
        return lambda asked: [None] * len(asked) if isinstance(asked, list) else None
    return country_code


def _address(text: str) -> str | None:
    """The address if it is globally routable; None for others."""
    parsed = read_address(text)
    return str(parsed) if parsed is not None and parsed.is_global else None


def _flat(record: Any) -> dict[str, Any]:
    """The parts of a record of a city, country or ASN file that we have fields for."""
    if not isinstance(record, dict):
        return {}

    found = {name: _at(record, path) for name, path in _PATHS.items()}
    found["region"] = found["region"] or _at(record, ("subdivisions", 0, "names", "en"))
    found |= _flat_fields(record)
    return {name: value for name, value in found.items() if value is not None}


def _flat_fields(record: dict[str, Any]) -> dict[str, Any]:
    """The fields of a record of IPinfo Lite, in which every value is a text."""
    texts = {key: value for key, value in record.items() if isinstance(value, str)}
    found: dict[str, Any] = {name: texts[key] for name, key in _FLAT_KEYS.items() if key in texts}
    number = texts.get("asn", "").removeprefix("AS")
    if number.isdecimal():
        found["autonomous_system_number"] = int(number)
    return found


def _at(node: Any, path: Sequence[str | int]) -> Any:
    for step in path:
        try:
            node = node[step]
        except (KeyError, IndexError, TypeError):
            return None
    return node
