"""`python -m headwater.lineage script.py args…` or `… -m module args…`: the script, with lineage."""

from __future__ import annotations

import sys

__all__ = ["main"]

USAGE = "usage: python -m headwater.lineage [-m MODULE | SCRIPT] [ARGUMENT]..."


def main(arguments: list[str]) -> None:
    """Run the script or module of the command line with its arguments."""
    from headwater.lineage.process.run_script import run, run_module

    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE, file=sys.stdout if arguments else sys.stderr)
        sys.exit(0 if arguments else 2)
    if arguments[0] == "-m" and len(arguments) > 1:
        run_module(arguments[1], arguments[2:])
    else:
        run(arguments[0], arguments[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
