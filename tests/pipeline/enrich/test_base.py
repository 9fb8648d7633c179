"""Rules are found by their entry points."""

from __future__ import annotations

from importlib.metadata import entry_points

import pytest

from headwater.errors import ExtensionError
from headwater.pipeline.steps.enrich.base import GROUP, Enricher, load_enricher
from headwater.settings import PipelineSettings


@pytest.mark.parametrize("name", ["ip_lookup", "user_agent_parse"])
def test_a_rule_is_loaded_when_it_is_installed(name: str) -> None:
    assert name in {entry.name for entry in entry_points(group=GROUP)}
    enricher = load_enricher(name, PipelineSettings())
    assert isinstance(enricher, Enricher)
    assert enricher.lookup([]) == []


def test_the_installed_rules_are_named_when_one_is_unknown() -> None:
    with pytest.raises(ExtensionError, match=r"`ip_lookupp`.*ip_lookup, user_agent_parse"):
        load_enricher("ip_lookupp", PipelineSettings())
