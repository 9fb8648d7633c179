"""Addresses become places."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import pytest

from headwater.destinations.column_types import Kind
from headwater.errors import ExtensionError, SettingsError
from headwater.pipeline.steps.enrich.base import load_enricher
from headwater.pipeline.steps.enrich.ip_lookup import IpLookup
from headwater.settings import PipelineSettings
from tests.parts.mmdb import write_mmdb

LONDON = {
    "continent": {"code": "EU"},
    "country": {"iso_code": "GB", "names": {"en": "United Kingdom"}},
    "subdivisions": [{"iso_code": "ENG", "names": {"en": "England"}}],
    "city": {"names": {"en": "London"}},
    "postal": {"code": "SW1"},
    "location": {"latitude": 51.5142, "longitude": -0.0931},
}


@pytest.fixture
def places(tmp_path: Path) -> PipelineSettings:
    path = tmp_path / "city.mmdb"
    asn = {"autonomous_system_number": 15169, "autonomous_system_organization": "GOOGLE"}
    write_mmdb(path, {"81.2.69.0/24": LONDON, "8.8.8.0/24": asn})
    return PipelineSettings(city_database=str(path))


@pytest.mark.parametrize(
    "value",
    [
        "8.8.8.8",
        " 8.8.8.8 ",
        "8.8.8.8:443",
        "::ffff:8.8.8.8",
        "2001:4860:4860::8888",
        "[2001:4860:4860::8888]:443",
        "10.0.0.1, 8.8.8.8",
        "unknown, 8.8.8.8, 81.2.69.160",
    ],
)
def test_the_country_is_found_when_an_address_is_public(value: str) -> None:
    assert IpLookup(PipelineSettings()).lookup([value]) == [{"country": "US"}]


@pytest.mark.parametrize(
    "value",
    [
        "",
        "nonsense",
        "10.0.0.1",
        "127.0.0.1",
        "::1",
        "fe80::1%eth0",
        "999.1.1.1",
        ",",
        "1.2.3",
        "\0",
        "x" * 10_000,
    ],
)
def test_nothing_is_found_when_a_value_is_no_public_address(value: str) -> None:
    assert IpLookup(PipelineSettings()).lookup([value]) == [None]


def test_the_place_is_found_when_a_city_database_knows_it(places: PipelineSettings) -> None:
    found = load_enricher("ip_lookup", places).lookup(["81.2.69.160", "10.0.0.1", "81.2.69.1"])
    place = {
        "continent": "EU",
        "country": "GB",
        "country_name": "United Kingdom",
        "region": "ENG",
        "city": "London",
        "zip": "SW1",
        "latitude": 51.5142,
        "longitude": -0.0931,
    }
    assert found == [place, None, place]


def test_the_country_is_added_when_the_database_does_not_have_it(places: PipelineSettings) -> None:
    found = IpLookup(places).lookup(["8.8.8.8", "1.1.1.1", "2001:4860:4860::8888"])
    assert found[0] == {
        "autonomous_system_number": 15169,
        "autonomous_system_organization": "GOOGLE",
        "country": "US",
    }
    assert found[1:] == [{"country": "AU"}, {"country": "US"}]


def test_the_place_is_found_when_the_file_is_ipinfos(tmp_path: Path) -> None:
    record = {
        "asn": "AS15169",
        "as_name": "Google LLC",
        "as_domain": "google.com",
        "continent": "North America",
        "continent_code": "NA",
        "country": "United States",
        "country_code": "US",
    }
    write_mmdb(tmp_path / "lite.mmdb", {"8.8.8.0/24": record})
    found = IpLookup(PipelineSettings(city_database=str(tmp_path / "lite.mmdb"))).lookup(["8.8.8.8"])
    assert found == [
        {
            "continent": "NA",
            "country": "US",
            "country_name": "United States",
            "autonomous_system_number": 15169,
            "autonomous_system_organization": "Google LLC",
        }
    ]


def test_the_users_file_suffices_when_iptocc_is_not_installed(
    places: PipelineSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "iptocc", None)
    found = load_enricher("ip_lookup", places).lookup(["81.2.69.160", "1.1.1.1", "10.0.0.1, 81.2.69.1"])
    assert [place and place["country"] for place in found] == ["GB", None, "GB"]
    with pytest.raises(ExtensionError, match="pip install iptocc"):
        load_enricher("ip_lookup", PipelineSettings())


def test_results_hold_only_declared_fields_of_their_kinds_when_all_are_known(
    places: PipelineSettings,
) -> None:
    python = {Kind.STRING: str, Kind.FLOAT64: float, Kind.INT64: int}
    for found in IpLookup(places).lookup(["81.2.69.160", "8.8.8.8"]):
        assert found
        for name, value in found.items():
            assert isinstance(value, python[IpLookup.fields[name]])


def test_it_still_finds_when_it_was_sent_to_a_worker(places: PipelineSettings) -> None:
    enricher = load_enricher("ip_lookup", places)
    travelled = pickle.loads(pickle.dumps(enricher))
    assert travelled.lookup(["81.2.69.160"]) == enricher.lookup(["81.2.69.160"])


@pytest.mark.parametrize("content", [None, b"", b"not a database"])
def test_the_file_is_named_at_the_start_when_it_cannot_be_read(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "city.mmdb"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SettingsError, match=r"city\.mmdb"):
        load_enricher("ip_lookup", PipelineSettings(city_database=str(path)))
