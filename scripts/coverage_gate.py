"""Fails unless the tests reach 95 % of the branches of log/ and delivery/, the stages that hold events."""

from __future__ import annotations

import sys

import coverage

INCLUDE = ["src/headwater/log/*", "src/headwater/delivery/*"]
FAIL_UNDER = 95.0


def main() -> int:
    measured = coverage.Coverage()
    measured.load()
    percent = measured.report(include=INCLUDE, skip_covered=True, show_missing=True)
    verdict = "is enough" if percent >= FAIL_UNDER else "is too little"
    print(f"log/ and delivery/: {percent:.1f} % {verdict} ({FAIL_UNDER:g} % are needed)")
    return 0 if percent >= FAIL_UNDER else 1


if __name__ == "__main__":
    sys.exit(main())
