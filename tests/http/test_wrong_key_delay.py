"""Wrong keys: slowed and logged per address; a right key never is."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from headwater.clock import ManualClock
from headwater.http.wrong_key_delay import FREE, LOG_SECONDS, MAX_ADDRESSES, MAX_SECONDS, WrongKeys
from tests.gateway.running import TOKENS, Running, get, post, read_all, run_bytes, statuses, wait_until

WRONG, RIGHT = "Authorization: Bearer guess", "Authorization: Bearer secret"


def test_answers_wait_longer_when_more_keys_are_wrong() -> None:
    clock = ManualClock()
    keys = WrongKeys(clock)
    assert [keys.seconds_to_wait("a") for _ in range(FREE)] == [0.0] * FREE
    waits = [keys.seconds_to_wait("a") for _ in range(50)]
    assert waits == sorted(waits)
    assert 0 < waits[0] < waits[-1] == MAX_SECONDS
    assert keys.seconds_to_wait("b") == 0.0
    clock.advance(60)
    assert keys.seconds_to_wait("a") == 0.0


def test_memory_and_log_are_bounded_when_there_are_very_many_addresses(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    keys = WrongKeys(clock)
    with caplog.at_level(logging.WARNING):
        for number in range(2 * MAX_ADDRESSES):
            for _ in range(FREE + 1):
                keys.seconds_to_wait(f"address {number}")
        assert len(keys._records) == MAX_ADDRESSES
        assert len(caplog.records) == 1  # a second has no more
        for _ in range(10):
            clock.advance(1.0)
            keys.seconds_to_wait("address 0")
            for _ in range(FREE + 2):
                keys.seconds_to_wait("address 1")
        assert len(caplog.records) == 2  # and an address one in a minute
        clock.advance(LOG_SECONDS)
        for _ in range(FREE + 2):
            keys.seconds_to_wait("address 1")
        assert "requests from address 1 had no key or a wrong one" in caplog.records[2].getMessage()


@pytest.mark.parametrize("request_bytes", [post(b"{}", WRONG), post(b"{}"), get("/metrics", WRONG)])
def test_a_guess_costs_its_connection_when_there_were_many(tmp_path: Path, request_bytes: bytes) -> None:
    with Running(tmp_path, api_keys=("secret",)) as gateway:
        with gateway.connect() as guesser:
            guesser.sendall(request_bytes * 200)
            answer = read_all(guesser)
            assert statuses(answer) == [401] * (FREE + 1)
            assert answer.count(b"Connection: close") == 1
        assert gateway.pending_bytes == 0


def test_a_right_key_is_served_at_once_when_others_of_the_address_are_wrong(tmp_path: Path) -> None:
    body = run_bytes()
    with Running(tmp_path, api_keys=("secret",), tokens=TOKENS) as gateway:
        guessers = [gateway.connect() for _ in range(40)]
        event = post(b"{}", "X-Auth-Token: guess", path="/api/v1/event")
        for number, guesser in enumerate(guessers):
            guesser.sendall(event if number % 2 else post(b"{}", WRONG))
        wait_until(lambda: gateway.connections == 40)
        assert statuses(gateway.talk(post(body, RIGHT) * 3)) == [200] * 3
        assert gateway.count("gateway_requests", "/api/v1/lineage", "401") < 20  # those of the guesses wait
        for guesser in guessers:
            guesser.close()
        assert gateway.bodies() == [body] * 3


def test_other_addresses_are_not_slowed_when_a_proxy_names_them(tmp_path: Path) -> None:
    with Running(tmp_path, api_keys=("secret",)) as gateway:
        one, two = "X-Forwarded-For: 192.0.2.1", "X-Forwarded-For: 192.0.2.2"
        assert statuses(gateway.talk(post(b"{}", WRONG, one) * (FREE + 5))) == [401] * (FREE + 1)
        assert statuses(gateway.talk(post(b"{}", WRONG, two) * FREE)) == [401] * FREE
