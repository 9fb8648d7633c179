from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import pytest

from headwater.errors import SettingsError
from headwater.settings import Settings, convert, load, parse
from headwater.settings.environment import variables
from headwater.settings.units import in_its_unit


def problems(text: str, environ: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(SettingsError) as raised:
        parse(text, environ or {}, source="headwater.yml")
    assert raised.value.source == "headwater.yml"
    return raised.value.problems


@pytest.mark.parametrize("text", ["", "# only a comment\n", "{}"], ids=["empty", "comment", "mapping"])
def test_the_defaults_hold_when_nothing_is_set(text: str) -> None:
    assert parse(text, {}) == Settings()


def test_values_arrive_when_they_are_set() -> None:
    settings = parse(
        """
        data_dir: /var/lib/headwater
        gateway: {port: 9000, api_keys: [first, second], tls: {certificate: a.pem, key: b.pem}}
        log: {retention_hours: 24}
        metrics: {statsd: {host: stats.example}}
        """,
        {},
    )
    assert settings.data_dir == "/var/lib/headwater"
    assert settings.gateway.port == 9000
    assert settings.gateway.api_keys == ("first", "second")
    assert settings.gateway.tls is not None
    assert settings.gateway.tls.key == "b.pem"
    assert settings.log.retention_hours == 24.0
    assert settings.metrics.statsd is not None
    assert settings.metrics.statsd.host == "stats.example"


def test_an_outlets_own_keys_become_its_options_when_they_stand_beside_the_common_ones() -> None:
    settings = parse(
        """
        outlets:
          - {name: marquez, type: openlineage, url: "http://marquez:5000", options: {gzip: true}}
        """,
        {},
    )
    (outlet,) = settings.outlets
    assert (outlet.name, outlet.type) == ("marquez", "openlineage")
    assert outlet.options == {"url": "http://marquez:5000", "gzip": True}


def test_the_environment_is_put_in_when_a_value_asks_for_it() -> None:
    settings = parse(
        "data_dir: ${env.HOME_DIR}/data\ngateway: {host: '${env.HOST|0.0.0.0}', port: '${env.PORT}'}",
        {"HOME_DIR": "/srv", "PORT": "8751"},
    )
    assert settings.data_dir == "/srv/data"
    assert settings.gateway.host == "0.0.0.0"
    assert settings.gateway.port == 8751


def test_a_literal_is_had_when_it_is_escaped() -> None:
    assert parse("data_dir: 'a$${b}$${env.X}'", {"X": "x"}).data_dir == "a${b}${env.X}"
    assert parse("data_dir: '${env.X}'", {"X": "${env.Y} ${Z}"}).data_dir == "${env.Y} ${Z}"


@pytest.mark.parametrize("text", ["${KEY}", "${env.}", "${env.A B}", "${ENV.KEY}", "${env.KEY", "a${", "${}"])
def test_a_reference_is_refused_when_it_is_not_one_of_the_environment(text: str) -> None:
    (problem,) = problems(f"data_dir: '{text}'", {"KEY": "k"})
    assert problem.startswith("`data_dir` has `${")
    assert "`$${`" in problem


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("gateway: {idle_timeout_seconds: .inf}", "<= 1000000"),
        ("gateway: {idle_timeout_seconds: .nan}", ">= 0"),
        ("gateway: {idle_timeout_seconds: 1e12}", "<= 1000000"),
        ("gateway: {max_depth: 99999999999999999999}", "max_depth"),
        ("gateway: {port: 010}", "expected `int`, got `str`"),
        ("gateway: {host: ''}", "write 0.0.0.0"),
        ("destinations: [{id: d, type: t, size: .inf}]", "expected a finite number, got `inf`"),
        (r'data_dir: "a\0b"', "cannot be stored"),
        (r'outlets: [{name: a, type: console, "\ud800": 1}]', "cannot be stored"),
        ("outlets: []\noutlets: []", "line 2, column 1"),
    ],
)
def test_a_value_is_refused_when_nothing_can_use_it(text: str, part: str) -> None:
    assert part in problems(text)[0]


def test_an_empty_default_is_taken_when_the_variable_is_not_set() -> None:
    assert parse("data_dir: 'data${env.SUFFIX|}'", {}).data_dir == "data"


def test_the_variable_is_named_when_it_is_not_set() -> None:
    (problem,) = problems("outlets: [{name: a, type: '${env.KIND}'}]")
    assert "`outlets[0].type` needs the environment variable KIND" in problem
    assert "${env.KIND|default}" in problem


def test_the_nearest_key_is_named_when_one_is_unknown() -> None:
    assert problems("gateway: {prot: 1}") == ["`gateway.prot` is not a setting; did you mean `gateway.port`?"]


def test_the_known_keys_are_listed_when_none_is_near() -> None:
    (problem,) = problems("log: {zzz: 1}")
    assert problem.startswith("`log.zzz` is not a setting; known are collect_seconds,")


def test_the_way_without_it_is_named_when_a_key_was_removed() -> None:
    (problem,) = problems("log: {partition_hours: 2}")
    assert problem.startswith("`log.partition_hours` is no longer a setting. Remove it: a partition")


def test_every_problem_is_named_when_there_are_several() -> None:
    found = problems(
        """
        data_dirr: x
        log_level: loud
        gateway: {port: 70000, tls: {certificate: a.pem}, max_depth: none}
        outlets:
          - {name: "bad name", type: file}
          - {type: file, retry: {max_seconds: -2}}
        """
    )
    assert [problem.partition("`: ")[0].strip("`").split("`")[0] for problem in found] == [
        "data_dirr",
        "log_level",
        "gateway.port",
        "gateway.tls.key",
        "gateway.max_depth",
        "outlets[0].name",
        "outlets[1].retry.max_seconds",
        "outlets[1].name",
    ]


def test_the_place_inside_a_list_is_named_when_an_item_is_of_the_wrong_type() -> None:
    assert problems("gateway: {api_keys: [fine, 5]}") == [
        "`gateway.api_keys[1]`: expected `str | object`, got `int`"
    ]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        pytest.param(
            "outlets: [{name: a, type: file}, {name: a, type: console}]", "two named `a`", id="twins"
        ),
        pytest.param(
            "gateway: {max_event_bytes: 2000, max_body_bytes: 1000}", "max_event_bytes", id="bodies"
        ),
        pytest.param("log: {partition_bytes: 600, retention_bytes: 1000}", "at least twice", id="bytes"),
        pytest.param("gateway: {api_keys: ['${env.KEY|}']}", "empty key", id="empty-key"),
        pytest.param("gateway: {api_keys: [a, {key: a, namespaces: [n]}]}", "a key twice", id="key-twice"),
        pytest.param("gateway: {api_keys: [{namespaces: [n]}]}", "`gateway.api_keys[0].key`", id="no-key"),
    ],
)
def test_a_contradiction_is_refused_when_each_value_alone_is_fine(text: str, part: str) -> None:
    (problem,) = problems(text)
    assert part in problem


@pytest.mark.parametrize(
    ("text", "part"),
    [
        pytest.param("a: [", "is not YAML", id="broken"),
        pytest.param("- a", "must be a mapping, not list", id="list"),
        pytest.param("outlets: 5", "`outlets`: expected `array`, got `int`", id="scalar"),
        pytest.param("outlets: [5]", "`outlets[0]`: expected `object`, got `int`", id="item"),
        pytest.param("gateway: 5", "`gateway`: expected `object`, got `int`", id="section"),
    ],
)
def test_the_shape_is_named_when_it_is_wrong(text: str, part: str) -> None:
    (problem,) = problems(text)
    assert part in problem


def test_the_file_is_found_when_it_is_named_by_argument_variable_or_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other.yml").write_text("data_dir: other", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert load(None, {}) == Settings()
    assert load(None, {"HEADWATER_CONFIG": "other.yml"}).data_dir == "other"
    (tmp_path / "headwater.yml").write_text("data_dir: here", encoding="utf-8")
    assert load(None, {}).data_dir == "here"
    assert load("other.yml", {}).data_dir == "other"


def test_the_path_is_named_when_the_file_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"nowhere\.yml has 1 problem"):
        load(tmp_path / "nowhere.yml", {})


class Own(msgspec.Struct, kw_only=True):
    url: str
    tries: Annotated[int, msgspec.Meta(ge=1)] = 3


def test_an_extensions_settings_are_checked_the_same_way_when_converted() -> None:
    assert convert({"url": "x", "tries": "5"}, Own, source="outlet a") == Own(url="x", tries=5)
    with pytest.raises(SettingsError) as raised:
        convert({"ulr": "x", "tries": 0}, Own, source="outlet a")
    assert raised.value.problems == [
        "`ulr` is not a setting; did you mean `url`?",
        "`tries`: expected `int` >= 1",
        "`url` is missing",
    ]


TOKENS = """
tokens:
  - {id: web, client_secret: "c1", server_secret: "${env.SERVER}", origins: ["https://shop.example"]}
  - {id: app, client_secret: "c2"}
"""


def test_tokens_and_destinations_arrive_when_they_are_set() -> None:
    settings = parse(
        TOKENS
        + """
data_dir: /data
destinations:
  - id: dwh
    type: duckdb
    path: warehouse.duckdb
    only_keys: [web]
    enrichment: [{name: ip_lookup, from: /source_ip, to: /eventn_ctx/location}]
    mappings: {keep_unmapped: false, fields: [{src: /a, dst: /b, action: move}, {src: /c, action: remove}]}
    primary_key: [eventn_ctx_event_id]
pipeline: {lock: {type: redis, url: "redis://h"}, spark: {spark.executor.memory: 4g}}
""",
        {"SERVER": "s1"},
    )
    assert [token.server_secret for token in settings.tokens] == ["s1", ""]
    (destination,) = settings.destinations
    assert destination.options == {"path": "warehouse.duckdb"}
    assert destination.enrichment[0].from_ == "/source_ip"
    assert [field.action for field in destination.mappings.fields] == ["move", "remove"]
    assert settings.pipeline.spark == {"spark.executor.memory": "4g"}
    assert settings.events_dir == Path("/data/events")
    assert (settings.staging_dir, settings.locks_dir) == (Path("/data/staging"), Path("/data/locks"))
    assert parse("events: {dir: /elsewhere}", {}).events_dir == Path("/elsewhere")


@pytest.mark.parametrize(
    ("text", "part"),
    [
        pytest.param("tokens: [{id: a}]", "has no secret", id="no-secret"),
        pytest.param(
            "tokens: [{id: a, client_secret: x}, {id: A, client_secret: y}]", "two with id `a`", id="twins"
        ),
        pytest.param(
            "tokens: [{id: a, client_secret: x, server_secret: x}]", "a secret twice (a)", id="same"
        ),
        pytest.param("tokens: [{id: ../a, client_secret: x}]", "`tokens[0].id`", id="path"),
        pytest.param("tokens: [{id: 'a.b', client_secret: x}]", "`tokens[0].id`", id="dot"),
        pytest.param('tokens: [{id: "a\\n", client_secret: x}]', "`tokens[0].id`", id="newline"),
        pytest.param(TOKENS + "destinations: [{id: d, type: t, only_keys: [wbe]}]", "`wbe`", id="key"),
        pytest.param("destinations: [{id: d, type: t}, {id: D, type: t}]", "two with id", id="same-id"),
        pytest.param("destinations: [{id: d, type: t, mode: fast}]", "destinations[0].mode", id="mode"),
        pytest.param(
            "destinations: [{id: d, type: t, mappings: {fields: [{action: cast, src: /a}]}}]",
            "`destinations[0].mappings.fields[0].type` is missing",
            id="cast",
        ),
        pytest.param(
            "destinations: [{id: d, type: t, mappings: {fields: [{action: constant, dst: a}]}}]",
            "fields[0].value` is missing",
            id="constant",
        ),
        pytest.param(
            "destinations: [{id: d, type: t, mappings: {fields: [{action: move, src: /a}]}}]",
            "fields[0].dst` is missing",
            id="move",
        ),
        pytest.param(
            "destinations: [{id: d, type: t, mode: both}]", "every event would be stored twice", id="both"
        ),
        pytest.param(
            "events: {kafka: {servers: h}}\ndestinations: [{id: d, type: t}]",
            "set `mode: stream`",
            id="kafka",
        ),
        pytest.param(
            "destinations: [{id: d, type: t, enrichment: [{name: n, form: /a, to: /b, from: /c}]}]",
            "did you mean `destinations[0].enrichment[0].from`?",
            id="from",
        ),
    ],
)
def test_a_token_or_a_destination_is_refused_when_it_could_not_work(text: str, part: str) -> None:
    (problem,) = problems(text, {"SERVER": "s1"})
    assert part in problem


def test_the_defaults_hold_when_all_lines_of_an_inner_section_are_comments() -> None:
    assert parse("pipeline:\n  lock:\n    #type: file\nlog:\n", {}) == Settings()


@pytest.mark.parametrize("section", ["outlets", "destinations"])
@pytest.mark.parametrize("options", ["text", "[1, 2]", "5"])
def test_a_problem_is_reported_when_options_are_not_a_mapping(section: str, options: str) -> None:
    name = "name" if section == "outlets" else "id"
    with pytest.raises(SettingsError, match="options"):
        parse(f"{section}: [{{{name}: a, type: console, options: {options}}}]")


def test_a_name_is_refused_when_it_ends_with_a_newline() -> None:
    with pytest.raises(SettingsError, match="name"):
        parse('outlets: [{name: "abc\\n", type: console}]')


# --- units


@pytest.mark.parametrize(
    ("setting", "text", "number"),
    [
        ("retention_bytes", "4GiB", 4 * 1024**3),
        ("retention_bytes", "64 MB", 64_000_000),
        ("retention_bytes", "1.5KiB", 1536),
        ("timeout_seconds", "500ms", 0.5),
        ("timeout_seconds", "5m", 300),
        ("rotation_minutes", "90s", 1.5),
        ("retention_hours", "7d", 168),
        ("archive_days", "12h", 0.5),
    ],
)
def test_a_size_or_time_becomes_a_number_when_it_has_a_unit(setting: str, text: str, number: float) -> None:
    assert in_its_unit(setting, text) == number


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ("retention_bytes", "4h"),
        ("retention_hours", "4GiB"),
        ("retention_hours", "24"),
        ("retention_hours", "-24h"),
        ("retention_hours", "24h\n5"),
        ("retention_hours", "\u0662\u0664h"),
        ("max_events", "4GiB"),
        ("host", "5m"),
    ],
)
def test_a_text_is_left_alone_when_it_is_no_quantity_of_the_setting(setting: str, text: str) -> None:
    assert in_its_unit(setting, text) is None


def test_units_are_read_at_every_depth_when_settings_have_them() -> None:
    text = """
    log: {retention_bytes: 8GiB, retention_hours: 2d}
    events: {rotation_minutes: 30s, kafka: {servers: "k:9092", config: {message.max.bytes: 4MB}}}
    outlets: [{name: a, type: http, batch_age_seconds: 2m, retry: {max_seconds: 1h}}]
    """
    found = parse(text, {})
    assert (found.log.retention_bytes, found.log.retention_hours) == (8 * 1024**3, 48)
    assert found.events.rotation_minutes == 0.5
    assert found.events.kafka is not None
    assert found.events.kafka.config == {"message.max.bytes": "4MB"}  # librdkafka's own
    (outlet,) = found.outlets
    assert (outlet.batch_age_seconds, outlet.retry.max_seconds) == (120, 3600)


def test_the_units_are_named_when_a_text_is_no_quantity() -> None:
    found = problems("log: {retention_bytes: 4 gigs, retention_hours: soon}\ngateway: {max_body_bytes: 1ZiB}")
    assert found == [
        "`log.retention_bytes`: expected a number of bytes, or text such as 64MiB or 4GB",
        "`log.retention_hours`: expected a number of hours, or text such as 30s, 5m, 24h or 7d",
        "`gateway.max_body_bytes`: expected a number of bytes, or text such as 64MiB or 4GB",
    ]


def test_units_are_read_when_an_extension_has_settings_of_its_own() -> None:
    class Own(msgspec.Struct):
        cache_bytes: int = 0
        wait_seconds: float | None = None

    assert convert({"cache_bytes": "2KiB", "wait_seconds": "1m"}, Own, source="own") == Own(2048, 60)


# --- environment variables


def loaded(tmp_path: Path, text: str, environ: dict[str, str]) -> Settings:
    (tmp_path / "headwater.yml").write_text(text, encoding="utf-8")
    return load(tmp_path / "headwater.yml", environ)


def test_a_variable_takes_precedence_when_it_is_named_after_a_setting(tmp_path: Path) -> None:
    environ = {
        "HEADWATER_DATA_DIR": "/data",
        "HEADWATER_GATEWAY__PORT": "9000",
        "HEADWATER_GATEWAY__STRICT": "true",
        "HEADWATER_GATEWAY__ADMIN_TOKEN": "a${b}",
        "HEADWATER_LOG__RETENTION_BYTES": "8GiB",
        "HEADWATER_METRICS__STATSD__HOST": "stats",
        "HEADWATER_OUTLETS": "[{name: a, type: http, url: 'http://a'}]",
        "HEADWATER_GRAPH__ENABLED": "null",
    }
    found = loaded(tmp_path, "gateway: {port: 1, host: h}\noutlets: []\nlog:\n  #nothing\n", environ)
    assert found.data_dir == "/data"
    assert (found.gateway.port, found.gateway.host, found.gateway.strict) == (9000, "h", True)
    assert found.gateway.admin_token == "a${b}"
    assert found.log.retention_bytes == 8 * 1024**3
    assert found.metrics.statsd is not None
    assert found.metrics.statsd.host == "stats"
    assert found.outlets[0].options == {"url": "http://a"}
    assert found.graph.enabled is None


def test_variables_alone_suffice_when_there_is_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert load(environ={"HEADWATER_GATEWAY__HOST": "0.0.0.0"}).gateway.host == "0.0.0.0"
    others = {"HEADWATER_ADMIN_TOKEN": "x", "HEADWATER_PORT": "tcp://10.0.0.1:8750"}
    assert load(environ=others) == Settings()


def test_the_variable_is_named_when_its_value_cannot_be_used(tmp_path: Path) -> None:
    environ = {
        "HEADWATER_GATEWAY__PORT": "many",
        "HEADWATER_GATEWAY__PROT": "1",
        "HEADWATER_OUTLETS": "[{name: a}]",
        "HEADWATER_TOKENS": "[",
    }
    with pytest.raises(SettingsError) as raised:
        loaded(tmp_path, "log: {retention_hours: 0}", environ)
    found = raised.value.problems
    assert "`gateway.port`: expected `int`, got `str` (from HEADWATER_GATEWAY__PORT)" in found
    assert "`outlets[0].type` is missing (from HEADWATER_OUTLETS)" in found
    hint = "did you mean HEADWATER_GATEWAY__PORT?"
    assert f"the environment variable HEADWATER_GATEWAY__PROT names no setting; {hint}" in found
    assert any(each.startswith("`tokens` (from HEADWATER_TOKENS): ") for each in found)
    assert "`log.retention_hours`: expected `float` > 0.0" in found
    assert len(found) == 5


def test_every_setting_has_a_variable_of_its_own_when_all_are_listed() -> None:
    found = variables()
    assert {".".join(each.path) for each in found.values()} >= {"data_dir", "gateway.tls.key", "outlets"}
    assert len({each.path for each in found.values()}) == len(found) > 80
    for known in ("HEADWATER_CONFIG", "HEADWATER_LINEAGE", "HEADWATER_CRASH_POINT"):
        assert known not in found  # they mean something else
