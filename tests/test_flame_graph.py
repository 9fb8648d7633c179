"""The flame graph of the benchmarks."""

from __future__ import annotations

from collections import Counter
from xml.etree import ElementTree

from bench.flame_graph import Stack, draw, top

SAMPLES: Counter[Stack] = Counter({("run", "parse<T>"): 3, ("run", "write"): 1, ("gc",): 4})
SVG = "{http://www.w3.org/2000/svg}"


def test_boxes_are_as_wide_as_their_part_when_a_flame_graph_is_drawn() -> None:
    root = ElementTree.fromstring(draw(SAMPLES, "a & b"))
    found = {}
    for group in root.iter(f"{SVG}g"):
        title, box = group.find(f"{SVG}title"), group.find(f"{SVG}rect")
        assert title is not None
        assert box is not None
        found[title.text] = float(box.attrib["width"]), float(box.attrib["x"])
    assert found == {
        "all 100.0 %": (1200, 0),
        "gc 50.0 %": (600, 0),
        "run 50.0 %": (600, 600),
        "parse<T> 37.5 %": (450, 600),
        "write 12.5 %": (150, 1050),
    }


def test_own_samples_and_those_below_are_counted_when_methods_are_listed() -> None:
    own, _, below = top(SAMPLES, 2).partition("--- with what it calls")
    assert own.splitlines()[1:] == [" 50.0 %  gc", " 37.5 %  parse<T>"]
    assert sorted(below.splitlines()[1:]) == [" 50.0 %  gc", " 50.0 %  run"]
