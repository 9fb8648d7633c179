"""User agents are taken apart."""

from __future__ import annotations

import pickle

import pytest

from headwater.pipeline.steps.enrich.base import load_enricher
from headwater.pipeline.steps.enrich.user_agent import UserAgentParse
from headwater.settings import PipelineSettings

IPHONE = (
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_1 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) "
    "Version/17.1 Mobile/15E148 Safari/604.1"
)
LINUX = "Mozilla/5.0 (X11; Linux x86_64; rv:133.0) Gecko/20100101 Firefox/133.0"
BOT = "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)"


def test_browser_system_and_device_are_found_when_they_are_known() -> None:
    phone, desktop, bot = load_enricher("user_agent_parse", PipelineSettings()).lookup([IPHONE, LINUX, BOT])
    assert phone == {
        "ua_family": "Mobile Safari",
        "ua_version": "17.1",
        "os_family": "iOS",
        "os_version": "17.1",
        "device_family": "iPhone",
        "device_brand": "Apple",
        "device_model": "iPhone",
    }
    assert desktop == {"ua_family": "Firefox", "ua_version": "133.0", "os_family": "Linux"}
    assert bot is not None
    assert bot["bot"] is True
    assert bot["ua_family"] == "Googlebot"


@pytest.mark.parametrize("value", ["", " ", "nonsense", "\0", "x" * 1_000_000])
def test_nothing_is_found_when_a_text_says_nothing(value: str) -> None:
    assert UserAgentParse(PipelineSettings()).lookup([value]) == [None]


def test_results_hold_only_declared_fields_when_anything_is_found() -> None:
    for found in UserAgentParse(PipelineSettings()).lookup([IPHONE, LINUX, BOT]):
        assert found
        assert set(found) <= set(UserAgentParse.fields)


def test_it_still_finds_when_it_was_sent_to_a_worker() -> None:
    enricher = load_enricher("user_agent_parse", PipelineSettings())
    assert pickle.loads(pickle.dumps(enricher)).lookup([LINUX]) == enricher.lookup([LINUX])
