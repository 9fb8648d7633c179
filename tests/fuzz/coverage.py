"""Searches for an input that breaks a reader, guided by the branches that inputs reach (atheris, libFuzzer).

    python -m tests.fuzz.coverage http_connection --seconds 1800

Inputs that reach new branches are kept in `--corpus`, which a later run goes on with. An input that breaks
the target is written to tests/cases/fuzz/<target>/ and stays there: test_targets.py tries it from then on.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["headwater", "h11"], enable_loader_override=False):
    from tests.fuzz.targets import MAX_INPUT, TARGETS, quietly

CASES = Path(__file__).parent.parent / "cases" / "fuzz"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--runs", type=int, default=-1, help="end after so many inputs")
    parser.add_argument("--seed", type=int, default=0, help="of libFuzzer's dice; 0: by chance")
    parser.add_argument("--corpus", type=Path, help="folder of inputs to begin with and to add to")
    args = parser.parse_args()
    target, seeds = TARGETS[args.target]
    cases = CASES / args.target
    cases.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        corpus = args.corpus or Path(place)
        corpus.mkdir(parents=True, exist_ok=True)
        for number, seed in enumerate(seeds()):
            (corpus / f"seed-{number}").write_bytes(seed)
        words = Path(place) / "words"
        words.write_text(_dictionary())
        options = (
            *(f"-max_total_time={args.seconds}", f"-runs={args.runs}", f"-seed={args.seed}"),
            *(f"-max_len={4 * MAX_INPUT}", "-timeout=60", "-rss_limit_mb=2048", f"-artifact_prefix={cases}/"),
            *(f"-dict={words}", "-len_control=20", "-print_final_stats=1"),
        )
        quietly()
        atheris.Setup([sys.argv[0], *options, str(corpus), str(cases)], target)
        atheris.Fuzz()


def _dictionary() -> str:
    """Words of HTTP and of OpenLineage, which chance alone would not find."""
    from tests.gateway.openlineage_corpus import definitions

    names = {name for schema in definitions.values() for name in schema.get("properties", {})}
    http = ["Content-Length: ", "Transfer-Encoding: chunked", "Connection: close", "\\x0d\\x0a", "HTTP/1.1"]
    http += ["Expect: 100-continue", "Upgrade: h2c", "Host: a", "Content-Encoding: gzip", "keep-alive"]
    return "\n".join(f'"{word}"' for word in [*sorted(names), *http])


if __name__ == "__main__":
    os.environ.setdefault("PYTHONHASHSEED", "0")
    main()
