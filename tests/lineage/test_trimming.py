"""Trimming of partition folders, and resolving of namespaces."""

from __future__ import annotations

import pytest
from openlineage.client.dataset.trimmers import DatasetNameTrimmer

from headwater.lineage.naming.names import DatasetId
from headwater.lineage.naming.normalize import NameNormalizer


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("/lake/orders/day=2026-01-01", "/lake/orders"),
        ("/lake/orders/year=2026/month=01", "/lake/orders"),
        ("/lake/orders/2026-01-01", "/lake/orders"),
        ("/lake/orders/20260101T0900Z", "/lake/orders"),
        ("/lake/orders/2026/01/31", "/lake/orders"),
        ("/lake/orders/202601", "/lake/orders"),
        ("/lake/orders/2026-01-01/country=de", "/lake/orders"),
        ("/lake/orders", "/lake/orders"),
        ("/20260101", "/20260101"),
        ("db.orders_2026", "db.orders_2026"),
        ("day=1", "day=1"),
    ],
)
def test_the_tail_is_cut_when_it_is_a_partition(name: str, expected: str) -> None:
    assert NameNormalizer().normalize(DatasetId("file", name)) == DatasetId("file", expected)


def test_a_trimmer_is_left_out_when_it_is_disabled_by_its_java_or_python_name() -> None:
    dated = DatasetId("file", "/lake/orders/2026-01-01")
    for name in (
        "io.openlineage.client.dataset.partition.trimmer.DateTrimmer",
        "io.openlineage.client.dataset.trimmers.DateTrimmer",
        "openlineage.client.dataset.trimmers.DateTrimmer",
    ):
        assert NameNormalizer(disabled_trimmers=[name]).normalize(dated) == dated
    assert NameNormalizer().normalize(dated, trim=False) == dated


class VersionTrimmer(DatasetNameTrimmer):
    """Cuts `/v1`."""

    def trim(self, name: str) -> str:
        return self._remove_last_part(name) if self._get_last_part(name).startswith("v") else name


class Broken(DatasetNameTrimmer):
    """Fails, or makes names longer."""

    def trim(self, name: str) -> str:
        if name.endswith("x"):
            raise ValueError(name)
        return name + "/more"


def test_extra_trimmers_take_part_when_they_are_set() -> None:
    names = NameNormalizer(extra_trimmers=[f"{__name__}.VersionTrimmer"])
    found = names.normalize(DatasetId("file", "/lake/orders/v1/day=1"))
    assert found.name == "/lake/orders"


@pytest.mark.parametrize("name", ["/lake/x", "/lake/y"])
def test_a_name_stays_when_an_extra_trimmer_breaks_its_contract(name: str) -> None:
    names = NameNormalizer(extra_trimmers=[f"{__name__}.Broken"])
    assert names.normalize(DatasetId("file", name)).name == name


def test_the_group_remove_is_cut_when_a_pattern_is_set_as_java_writes_it() -> None:
    names = NameNormalizer(remove_pattern="(?<remove>/tmp-[0-9]+)")
    assert names.normalize(DatasetId("file", "/lake/tmp-17/orders")).name == "/lake/orders"


def resolved(names: NameNormalizer, namespace: str) -> str:
    return names.normalize(DatasetId(namespace, "x")).namespace


def test_hosts_are_one_when_a_resolver_lists_them() -> None:
    names = NameNormalizer(
        resolvers={
            "main": {"type": "hostList", "hosts": ["kafka1.example", "kafka2.example"], "schema": "kafka"},
            "db": {"type": "pattern", "regex": "db-[0-9]+"},
            "by": {
                "type": "patternGroup",
                "regex": "(?<cluster>[a-z]+)-node[0-9]+",
                "matchingGroup": "cluster",
            },
        }
    )
    assert resolved(names, "kafka://kafka2.example:9092") == "kafka://main:9092"
    assert resolved(names, "kafka://KAFKA1.example:9092") == "kafka://main:9092"
    assert resolved(names, "kafka://mykafka1.example:9092") == "kafka://mykafka1.example:9092"
    assert resolved(names, "kafka://kafka1.example.org:9092") == "kafka://kafka1.example.org:9092"
    assert resolved(names, "https://kafka2.example:9092") == "https://kafka2.example:9092"
    assert resolved(names, "postgres://db-17:5432") == "postgres://db:5432"
    assert resolved(names, "hdfs://blue-node7:8020") == "hdfs://blue:8020"
    assert resolved(names, "file") == "file"


def test_a_pattern_replaces_whole_hosts_when_it_matches_a_part_of_others() -> None:
    group = {"type": "patternGroup", "regex": r"(?<c>[a-z-]+)-(\d)+\.example:[\d]*", "matchingGroup": "c"}
    names = NameNormalizer(resolvers={"db": {"type": "pattern", "regex": "db[0-9]"}, "by": group})
    for other in ("postgres://db1.eu:5432", "postgres://mydb1:5432", "postgres://db12", "db1://host:1"):
        assert resolved(names, other) == other
    assert resolved(names, "mysql://db1:3306,db2:3306,web:3306") == "mysql://db:3306,db:3306,web:3306"
    assert resolved(names, "cassandra://prod-7.example:8080/x") == "cassandra://prod/x"
    assert resolved(names, "abfss://box@db1") == "abfss://box@db"


@pytest.mark.parametrize(
    "given", [{"type": "hostList"}, {"type": "odd"}, {"type": "pattern", "regex": "("}, "text"]
)
def test_a_resolver_is_left_out_when_it_is_not_whole(given: object) -> None:
    assert resolved(NameNormalizer(resolvers={"broken": given}), "kafka://a:1") == "kafka://a:1"
