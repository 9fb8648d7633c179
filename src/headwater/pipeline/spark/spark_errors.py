"""The cause of an error of Spark, in one line: its text has the stacks of the JVM and of Python workers."""

from __future__ import annotations

import re

_TASK = re.compile(
    r"Job aborted due to stage failure: .*?most recent failure: Lost task \S+ in stage \S+ \(TID \d+\) "
    r"\((?P<host>\S+) executor (?P<executor>\w+)\): (?P<reason>.*)"
)
_TRACEBACK = "Traceback (most recent call last):"
_CALLING = "An error occurred while calling "
_LOST_PACKAGE = re.compile(r"No module named '(headwater|pyarrow|msgspec|orjson|apsw|maxminddb)\b")


def cause_of(text: str) -> str:
    """What went wrong, with the executor on which it did, and what to do where that is known."""
    lines = text.strip().splitlines() or [""]
    first = lines[0].strip()
    if first.startswith(_CALLING) and len(lines) > 1:
        first = lines[1].strip().removeprefix(":").strip()
    where = ""
    for line in lines:
        if match := _TASK.search(line):
            first, where = match["reason"].strip(), f" (executor {match['executor']} on {match['host']})"
            break
    raised = _raised(lines)
    if raised:
        return f"{raised}{where}{_hint(raised)}"
    causes = [line.strip() for line in lines if line.strip().startswith("Caused by:")]
    last = causes[-1] if causes else "Caused by:"
    inner = "" if last.removeprefix("Caused by:").strip() in first else f" ({last})"
    return f"{first}{inner}{where}{_hint(first + inner)}"


def _raised(lines: list[str]) -> str:
    """The exception at the end of the last Python traceback; empty if there is none."""
    begins = [number for number, line in enumerate(lines) if line.strip().endswith(_TRACEBACK)]
    found = ""
    for line in lines[begins[-1] + 1 :] if begins else ():
        if not line.strip() or line.startswith("\tat "):
            break
        if not line.startswith(" "):
            found = line.strip()
    return found


def _hint(reason: str) -> str:
    if match := _LOST_PACKAGE.search(reason):
        return (
            f". Executors lack {match[1]}: leave `pipeline.ship_packages` on, or install "
            "'headwater[pipeline]' on each worker"
        )
    if "Cannot run program" in reason:
        return ". Set `pipeline.spark` `spark.pyspark.python` to a Python that each worker has"
    return ""
