"""Requests of browsers: a page of another site cannot store lineage, unless its origin is allowed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.gateway.senders.key_namespaces import Namespaces
from headwater.settings import GatewaySettings, parse
from tests.gateway.namespace_places import events_naming
from tests.gateway.running import TOKENS, Running, run_bytes, run_event, wait_until

LINEAGE = "/api/v1/lineage"
BATCH = "/api/v1/lineage/batch"
PAGE = "https://page.example"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with Running(tmp_path_factory.mktemp("origins"), tokens=TOKENS, origins=(PAGE,)) as running:
        yield running


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (LINEAGE, run_bytes()),
        (BATCH, b"[" + run_bytes() + b"]"),
        ("/api/v1/s2s/event?token=web-server", b"{}"),
        ("/api/v1/events/bulk?token=web-server", b"{}"),
    ],
)
@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({"sec-fetch-site": "cross-site"}, id="cross-site"),
        pytest.param({"sec-fetch-site": "cross-site", "origin": "https://evil.example"}, id="cors"),
        pytest.param({"sec-fetch-site": "same-site", "origin": "http://localhost:3000"}, id="same-site"),
        pytest.param({"origin": "https://evil.example"}, id="old-browser"),
        pytest.param({"origin": "null"}, id="sandbox"),
        pytest.param({"origin": "http://["}, id="broken-origin"),
        pytest.param(
            {"origin": "http://evil.example:8750", "host": "evil.example:8750"}, id="own-name-for-our-address"
        ),
        pytest.param({"sec-fetch-site": "same-origin", "host": "evil.example:8750"}, id="rebound"),
        pytest.param({"sec-fetch-site": "same-origin", "host": "127.0.0.1.evil.example"}, id="resembling"),
    ],
)
def test_nothing_is_stored_when_a_page_of_another_site_sends_it(
    gateway: Running, path: str, body: bytes, headers: dict[str, str]
) -> None:
    before = len(gateway.events())
    with gateway.client() as client:  # no Content-Type: a page may send a Blob without one
        answer = client.post(path, content=body, headers=headers)
    assert (answer.status_code, answer.json()["error"]) == (403, "foreign_origin")
    assert len(gateway.events()) == before
    assert gateway.open_rejects() == []


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({}, id="not-a-browser"),
        pytest.param({"sec-fetch-mode": "cors"}, id="node"),
        pytest.param({"sec-fetch-site": "cross-site", "origin": PAGE}, id="allowed"),
        pytest.param({"origin": "http://127.0.0.1:8750", "host": "127.0.0.1:8750"}, id="same-origin"),
        pytest.param({"sec-fetch-site": "same-origin", "host": "localhost:8750"}, id="own-page"),
        pytest.param({"sec-fetch-site": "same-origin", "host": "[2001:db8::1]:8750"}, id="address"),
    ],
)
def test_an_event_is_stored_when_a_server_or_an_allowed_page_sends_it(
    gateway: Running, headers: dict[str, str]
) -> None:
    body = run_bytes()
    answer = gateway.post(body, headers=headers)
    assert answer.status_code == 200
    assert gateway.bodies()[-1] == body
    allowed = PAGE if headers.get("origin") == PAGE else None
    assert answer.headers.get("access-control-allow-origin") == allowed


def test_a_page_may_read_every_answer_when_its_origin_is_allowed(gateway: Running) -> None:
    headers = {"origin": PAGE, "sec-fetch-site": "cross-site"}
    answers = [
        gateway.post(body, path, headers)
        for path, body in (
            (LINEAGE, run_bytes(producer="x")),
            (LINEAGE, b"{}"),
            (LINEAGE, b"{"),
            (BATCH, b"[{}]"),
            (BATCH, b"[]"),
            (BATCH, b"{}"),
        )
    ]
    assert [answer.status_code for answer in answers] == [200, 400, 400, 200, 200, 400]
    assert {answer.headers.get("access-control-allow-origin") for answer in answers} == {PAGE}
    with gateway.client() as client:
        for origin, allowed in ((PAGE, PAGE), ("https://evil.example", None)):
            answer = client.options(LINEAGE, headers={"origin": origin})
            assert answer.status_code == 204
            assert answer.headers.get("access-control-allow-origin") == allowed
            assert ("access-control-allow-methods" in answer.headers) == (allowed is not None)


BOUND = """
gateway:
  api_keys:
    - free
    - key: kitchen
      namespaces: [food_delivery, "postgres://kitchen*"]
    - key: küche
      namespaces: [küche]
"""


def keys() -> GatewaySettings:
    return parse(BOUND).gateway


def facet(**content: Any) -> dict[str, Any]:
    return {"_producer": PAGE, "_schemaURL": f"{PAGE}/facet.json"} | content


def dataset(namespace: str, **facets: Any) -> dict[str, Any]:
    return {"namespace": namespace, "name": "table", "facets": facets}


OWN = {"namespace": "food_delivery", "name": "job"}
SOURCE = {"namespace": "warehouse", "name": "orders", "field": "id"}
FOREIGN = [
    pytest.param({"job": {"namespace": "payments", "name": "job"}}, "payments", id="job"),
    pytest.param({"job": {"namespace": "food_delivery2", "name": "job"}}, "food_delivery2", id="longer"),
    pytest.param({"job": {"namespace": "food_delivery\n", "name": "job"}}, "food_delivery\\n", id="newline"),
    pytest.param({"inputs": [dataset("postgres://other")]}, "postgres://other", id="input"),
    pytest.param({"outputs": [dataset("food_delivery"), dataset("s3://lake")]}, "s3://lake", id="output"),
    pytest.param(
        {
            "outputs": [
                dataset(
                    "food_delivery",
                    symlinks=facet(identifiers=[{"namespace": "payments", "name": "t", "type": "TABLE"}]),
                )
            ]
        },
        "payments",
        id="symlink",
    ),
    pytest.param(
        {
            "outputs": [
                dataset("food_delivery", columnLineage=facet(fields={"id": {"inputFields": [SOURCE]}}))
            ]
        },
        "warehouse",
        id="column",
    ),
    pytest.param(
        {
            "run": {
                "runId": "01890a5d-ac96-774b-bcce-b302099a8057",
                "facets": {
                    "parent": facet(
                        run={"runId": "01890a5d-ac96-774b-bcce-b302099a8057"},
                        job={"namespace": "payments", "name": "dag"},
                    )
                },
            }
        },
        "payments",
        id="parent",
    ),
]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with Running(tmp_path_factory.mktemp("keys"), api_keys=keys().api_keys) as running:
        yield running


@pytest.mark.parametrize(("changes", "named"), FOREIGN)
def test_an_event_is_kept_nowhere_when_it_names_a_namespace_of_others(
    guarded: Running, changes: dict[str, Any], named: str
) -> None:
    body = run_bytes(**({"job": OWN} | changes))
    before = len(guarded.events())
    answer = guarded.post(body, headers={"authorization": "Bearer kitchen"})
    assert (answer.status_code, answer.json()["error"]) == (403, "namespace_not_allowed")
    assert f"'{named}'" in answer.json()["message"]
    good = run_bytes(job=OWN)
    batch = guarded.post(
        b"[" + body + b"," + good + b"]", BATCH, headers={"authorization": "Bearer kitchen"}
    ).json()
    assert batch["summary"]["successful"] == 1
    assert named in batch["failed_events"][0]["reason"]
    assert guarded.bodies()[before:] == [good]
    assert guarded.open_rejects() == []
    assert guarded.post(body, headers={"authorization": "Bearer free"}).status_code == 200
    received, settled = guarded.fates()
    assert received == settled


def test_an_event_is_refused_when_any_place_of_the_schema_names_a_namespace_of_others(
    guarded: Running,
) -> None:
    places = dict(events_naming("food_delivery", "payments"))
    assert len(places) > 60  # as many as the schema has
    own = facet(custom=[{"source": {"namespace": "payments", "name": "t"}}])
    places["a facet beyond the schema"] = run_event(job=OWN | {"facets": {"own": own}})
    before = guarded.bodies()
    for place, event in places.items():
        answer = guarded.post(json.dumps(event).encode(), headers={"authorization": "Bearer kitchen"})
        assert (place, answer.status_code, answer.json()["error"]) == (place, 403, "namespace_not_allowed")
    assert guarded.bodies() == before
    for place, event in events_naming("food_delivery", "food_delivery"):
        answer = guarded.post(json.dumps(event).encode(), headers={"authorization": "Bearer kitchen"})
        assert (place, answer.status_code) == (place, 200)


def test_a_namespace_is_not_that_of_a_dataset_when_there_is_no_name(guarded: Running) -> None:
    pod = {"kubernetes": facet(namespace="batch-jobs", pod="etl-1")}
    body = run_bytes(job=OWN, run={"runId": str(UUID(int=1)), "facets": pod})
    assert guarded.post(body, headers={"authorization": "Bearer kitchen"}).status_code == 200


def test_a_replay_keeps_the_namespaces_of_the_key_when_the_event_was_refused_for_another_reason(
    tmp_path: Path,
) -> None:
    foreign = run_bytes(job={"namespace": "payments", "name": "j"}, more=[[[[[[]]]]]])
    own = run_bytes(job=OWN, more=[[[[[[]]]]]])
    headers = {"authorization": "Bearer kitchen"}
    with Running(tmp_path, api_keys=keys().api_keys, max_depth=5) as gateway:
        for body in (foreign, own):
            assert gateway.post(body, headers=headers).status_code == 400
            assert gateway.post(body, headers={"authorization": "Bearer free"}).status_code == 400
            answer = gateway.post(b"[" + body + b"]", BATCH, headers=headers)
            assert answer.json()["summary"]["failed"] == 1
    with Running(tmp_path) as gateway:  # higher limits, and no keys at all
        gateway.rejects.request_replay(None, "gateway")
        wait_until(lambda: not gateway.rejects.requested("gateway"))
        assert gateway.bodies() == [foreign, own, own, own]
        for reject in gateway.open_rejects():
            assert reject.body == foreign
            assert "not for the namespace 'payments'" in reject.reason


def test_an_event_is_stored_when_all_its_namespaces_are_those_of_the_key(guarded: Running) -> None:
    body = run_bytes(job=OWN, inputs=[dataset("postgres://kitchen:5432")], outputs=[dataset("food_delivery")])
    assert guarded.post(body, headers={"authorization": "Bearer kitchen"}).status_code == 200
    spelled = run_bytes(job={"namespace": "küche", "name": "j"})
    with guarded.client() as client:
        for key in ("Bearer küche".encode(), "Bearer küche".encode("latin-1")):
            answer = client.post(LINEAGE, content=spelled, headers=[(b"authorization", key)])
            assert answer.status_code == 200
            answer = client.post(LINEAGE, content=body, headers=[(b"authorization", key)])
            assert answer.status_code == 403


def test_a_key_is_still_required_when_keys_are_bound(guarded: Running) -> None:
    assert keys().key_texts == ("free", "kitchen", "küche")
    assert guarded.post(run_bytes()).status_code == 401
    assert guarded.post(run_bytes(), headers={"authorization": "Bearer other"}).status_code == 401


@given(
    st.lists(st.text("ab*", max_size=6), min_size=1, max_size=3),
    st.text("ab", max_size=8),
)
def test_a_namespace_fits_a_pattern_when_each_star_stands_for_some_text(
    patterns: list[str], text: str
) -> None:
    expected = any(
        re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text, re.DOTALL) for pattern in patterns
    )
    assert (Namespaces(patterns).foreign(named(text)) is None) == expected


def test_a_long_namespace_is_compared_in_linear_time_when_a_pattern_has_several_stars() -> None:
    # with a regular expression this takes 10^18 steps
    text = "ab" * 500_000
    assert Namespaces(["*a*a*a*c"]).foreign(named(text)) == text
    assert Namespaces(["*a*a*a*b"]).foreign(named(text)) is None


def named(namespace: str) -> dict[str, Any]:
    return {"job": {"namespace": namespace, "name": "j"}}
