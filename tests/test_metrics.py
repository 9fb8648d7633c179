from __future__ import annotations

import socket

import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics import parser

from headwater.metrics import (
    CATALOGUE,
    MAX_DATAGRAM_BYTES,
    Counter,
    Gauge,
    Histogram,
    Metrics,
    StatsdPublisher,
)


def families(metrics: Metrics) -> list[Metric]:
    return list(parser.text_string_to_metric_families(metrics.openmetrics()))  # type: ignore[no-untyped-call]


def samples(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families(metrics)
        for sample in family.samples
    }


def fill(metrics: Metrics) -> None:
    """Count something on every metric of the catalogue."""
    for entry in CATALOGUE:
        name = entry.name.removeprefix("headwater_")
        labels = [f'a "{label}"\\\n' for label in entry.labels]
        if entry.kind == "counter":
            metrics.counter(name).add(2, *labels)
        elif entry.kind == "gauge":
            metrics.gauge(name).set(1.5, *labels)
        else:
            metrics.histogram(name).observe(0.003, *labels)


def test_an_openmetrics_reader_understands_every_metric_when_all_are_counted() -> None:
    metrics = Metrics()
    fill(metrics)
    found = {family.name: family for family in families(metrics)}
    assert set(found) == {entry.name for entry in CATALOGUE}
    for entry in CATALOGUE:
        family = found[entry.name]
        assert family.type == entry.kind
        assert family.documentation == entry.help
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(entry.labels)
            assert all(value == f'a "{key}"\\\n' for key, value in sample.labels.items() if key != "le")


def test_a_counter_grows_per_label_when_it_is_added_to() -> None:
    metrics = Metrics()
    retries = metrics.counter("delivery_retries")
    retries.add(1, "a")
    retries.add(2, "a")
    metrics.counter("delivery_retries").add(5, "b")
    assert samples(metrics) == {
        ("headwater_delivery_retries_total", (("outlet", "a"),)): 3,
        ("headwater_delivery_retries_total", (("outlet", "b"),)): 5,
    }


def test_a_counter_without_labels_shows_zero_when_nothing_was_counted_yet() -> None:
    metrics = Metrics()
    metrics.counter("log_events_appended")
    assert samples(metrics) == {("headwater_log_events_appended_total", ()): 0}


def test_a_gauge_calls_its_function_when_metrics_are_reported() -> None:
    metrics = Metrics()
    values = [1.0]
    metrics.gauge("log_bytes").set(lambda: values[0])
    assert samples(metrics)["headwater_log_bytes", ()] == 1.0
    values[0] = 7.0
    assert samples(metrics)["headwater_log_bytes", ()] == 7.0


def test_the_other_numbers_are_still_shown_when_a_gauges_function_fails() -> None:
    metrics = Metrics()
    metrics.gauge("delivery_lag_events").set(lambda: 1 / 0, "dead")
    metrics.gauge("delivery_lag_events").set(4, "alive")
    assert samples(metrics) == {("headwater_delivery_lag_events", (("outlet", "alive"),)): 4.0}


def test_a_histogram_counts_up_to_each_bound_when_it_observes() -> None:
    metrics = Metrics()
    for value in (0.0005, 0.003, 99.0):
        metrics.histogram("log_commit_seconds").observe(value)
    found = samples(metrics)
    assert found["headwater_log_commit_seconds_bucket", (("le", "0.0005"),)] == 1
    assert found["headwater_log_commit_seconds_bucket", (("le", "0.0025"),)] == 1
    assert found["headwater_log_commit_seconds_bucket", (("le", "0.005"),)] == 2
    assert found["headwater_log_commit_seconds_bucket", (("le", "10.0"),)] == 2
    assert found["headwater_log_commit_seconds_bucket", (("le", "+Inf"),)] == 3
    assert found["headwater_log_commit_seconds_count", ()] == 3
    assert found["headwater_log_commit_seconds_sum", ()] == pytest.approx(99.0035)


def test_a_metric_is_refused_when_the_catalogue_does_not_have_it() -> None:
    with pytest.raises(KeyError):
        Metrics().counter("lunches")


def test_names_are_unique_and_documented_when_the_catalogue_is_read() -> None:
    names = [entry.name for entry in CATALOGUE]
    assert len(names) == len(set(names))
    for entry in CATALOGUE:
        assert entry.kind in {"counter", "gauge", "histogram"}
        assert entry.help.endswith(".")
        assert not entry.name.endswith("_total")


def test_the_kinds_are_what_was_asked_for_when_a_metric_is_made() -> None:
    metrics = Metrics()
    fill(metrics)
    kinds = {Counter: "counter", Gauge: "gauge", Histogram: "histogram"}
    assert [kinds[type(metric)] for metric in metrics] == [entry.kind for entry in CATALOGUE]


def test_statsd_lines_have_the_growth_when_they_are_made_twice() -> None:
    metrics = Metrics()
    before: dict[str, float] = {}
    metrics.counter("gateway_requests").add(1_234_567, "/api/v1/lineage", "200")
    metrics.gauge("log_bytes").set(4_294_967_296)
    metrics.gauge("delivery_lag_seconds").set(1.25, "marquez")
    metrics.histogram("log_commit_seconds").observe(0.002)
    metrics.histogram("log_commit_seconds").observe(0.004)
    assert list(metrics.statsd("prod.hw", before)) == [
        "prod.hw.gateway_requests._api_v1_lineage.200:1234567|c",
        "prod.hw.log_bytes:4294967296|g",
        "prod.hw.delivery_lag_seconds.marquez:1.250000|g",
        "prod.hw.log_commit_seconds:3.000|ms",
        "prod.hw.log_commit_seconds.count:2|c",
    ]
    metrics.counter("gateway_requests").add(1, "/api/v1/lineage", "200")
    assert list(metrics.statsd("prod.hw", before)) == [
        "prod.hw.gateway_requests._api_v1_lineage.200:1|c",
        "prod.hw.log_bytes:4294967296|g",
        "prod.hw.delivery_lag_seconds.marquez:1.250000|g",
    ]


def test_a_gauge_is_reset_first_when_its_value_is_negative() -> None:
    metrics = Metrics()
    metrics.gauge("log_bytes").set(-2)
    assert list(metrics.statsd("", {})) == ["log_bytes:0|g", "log_bytes:-2|g"]


def receive_lines(udp: socket.socket, count: int) -> list[str]:
    lines: list[str] = []
    while len(lines) < count:
        datagram = udp.recv(65536)
        assert 0 < len(datagram) <= MAX_DATAGRAM_BYTES
        lines += datagram.decode().splitlines()
    return lines


def test_statsd_receives_every_metric_when_it_is_published() -> None:
    metrics = Metrics()
    fill(metrics)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.bind(("127.0.0.1", 0))
        udp.settimeout(30)
        StatsdPublisher(metrics, "127.0.0.1", udp.getsockname()[1], "headwater", 3600).publish()
        expected = list(metrics.statsd("headwater", {}))
        assert sorted(receive_lines(udp, len(expected))) == sorted(expected)


def test_statsd_receives_the_last_numbers_when_the_publisher_is_closed() -> None:
    metrics = Metrics()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.bind(("127.0.0.1", 0))
        udp.settimeout(30)
        publisher = StatsdPublisher(metrics, "localhost", udp.getsockname()[1], "headwater", 3600)
        publisher.start()
        metrics.counter("log_events_appended").add(3)
        publisher.close()
        assert receive_lines(udp, 1) == ["headwater.log_events_appended:3|c"]


@pytest.mark.parametrize("host", ["no-such-host.invalid", f"{'x' * 64}.invalid"])
def test_nothing_is_raised_when_the_statsd_server_is_not_there(host: str) -> None:
    metrics = Metrics()
    metrics.counter("log_events_appended").add(3)
    publisher = StatsdPublisher(metrics, host, 8125, "headwater", 3600)
    publisher.start()
    publisher.close()
    StatsdPublisher(metrics, "127.0.0.1", 8125, "headwater", 3600).close()
    assert list(metrics.statsd("headwater", {})) == ["headwater.log_events_appended:3|c"]
