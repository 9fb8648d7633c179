"""Compares our events with the event files that openlineage-spark's own container tests expect.

    make bench-upstream-events ARGS="--source DIR [--only NAME]"

DIR is a checkout of OpenLineage's repository, which is not a part of this one. Each PySpark script of its
tests runs with our lineage in compatibility mode, those that use Kafka on a real broker and the release of
Spark that has a connector in tests/parts; an expected file counts as matched if one event has all of it, by
the rules of those tests: other fields and items, and the order of lists, are ignored.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import pyspark
from tests.parts.cache import Missing
from tests.parts.kafka_broker import KafkaBroker
from tests.parts.spark_jars import SPARK_VERSION, find_spark_jars
from tests.parts.spark_versions import SOURCE, python_of

KAFKA_HOST = "kafka-host:9092"  # of the broker in upstream's scripts
TOPICS = ("topicA", "topicB")  # which its test makes before
TESTS = "integration/spark/app/src/test/java/io/openlineage/spark/agent/SparkContainerIntegrationTest.java"
SCRIPTS = "integration/spark/app/src/test/resources/spark_scripts"
FILES = "integration/spark/app/integrations/container"
SECONDS = 240
DATA = "integration/spark/app/src/test/resources/test_data"
SETTINGS = {
    "spark.sql.shuffle.partitions": "1",
    "spark.ui.enabled": "false",
    "spark.openlineage.transport.type": "file",
    "spark.openlineage.facets.spark.logicalPlan.disabled": "false",
    "spark.openlineage.facets.spark_unknown.disabled": "false",
    "spark.openlineage.columnLineage.datasetLineageEnabled": "false",
    "spark.openlineage.columnLineage.descriptionsEnabled": "true",
    "spark.openlineage.dataset.namespaceResolvers.kafka-cluster-prod.type": "hostList",
    "spark.openlineage.dataset.namespaceResolvers.kafka-cluster-prod.hosts": "[kafka-host;kafka-host-other]",
}


class Test(NamedTuple):
    """One of upstream's tests: a script, its settings and the files of the events that it expects."""

    name: str
    namespace: str
    script: str
    settings: dict[str, str]
    app_name: str
    files: list[str]


def tests(source: Path) -> Iterator[Test]:
    """The tests of PySpark scripts that expect files."""
    text = (source / TESTS).read_text(encoding="utf-8")
    for part in re.split(r"\n  void ", text)[1:]:
        name, body = part.split("(", 1)
        script = re.search(r'"(?:/opt/spark_scripts/)?(\w+\.py)"', body)
        files = list(dict.fromkeys(re.findall(r'"(\w+\.json)"', body)))
        namespace = re.search(r'[cC]ontainer,\s*"([^"]+)"', body)
        if script is None or not files or namespace is None:
            continue
        conf = dict(pair.split("=", 1) for pair in re.findall(r'"(spark\.[\w.]+=[^"]*)"', body))
        app_name = re.search(r'"app_name=(\w+)"', body)
        yield Test(name, namespace[1], script[1], conf, app_name[1] if app_name else "", files)


def run(source: Path, test: Test, folder: Path) -> tuple[list[dict[str, Any]], str]:
    """The events of a script, and the end of its errors."""
    # in a folder of its own instead of /tmp
    home, data = str(folder / "tmp"), str(source / DATA)
    script = folder / test.script
    text = (source / SCRIPTS / test.script).read_text(encoding="utf-8")
    text = text.replace("/tmp", home).replace("/test_data/", f"{data}/")
    python, broker, jars = sys.executable, None, ""
    if KAFKA_HOST in text:
        python, jars = str(python_of(SPARK_VERSION)), ",".join(map(str, find_spark_jars()))
        broker = KafkaBroker(folder / "broker")
        text = text.replace(KAFKA_HOST, broker.bootstrap)
    script.write_text(text, encoding="utf-8")
    Path(home).mkdir()
    log = folder / "events.jsonl"
    settings = SETTINGS | {
        "spark.sql.warehouse.dir": f"{home}/warehouse",
        "spark.openlineage.namespace": test.namespace,
        "spark.openlineage.transport.log_file_path": str(log),
        "spark.openlineage.transport.append": "true",
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={folder}/derby",
    }
    if broker is not None:
        settings["spark.jars"] = jars
        settings["spark.openlineage.dataset.namespaceResolvers.kafka-cluster-prod.hosts"] = "[127.0.0.1;x]"
    settings |= {"spark.openlineage.appName": test.app_name} if test.app_name else {}
    arguments = [
        part for key, value in (settings | test.settings).items() for part in ("--conf", f"{key}={value}")
    ]
    with broker or nullcontext():
        if broker is not None and "assign" in text:
            for topic in TOPICS:
                broker.create_topic(topic)
        done = subprocess.run(
            [python, "-m", "headwater.lineage", str(script)],
            env=os.environ
            | {
                "PYSPARK_SUBMIT_ARGS": " ".join(f"'{part}'" if "=" in part else part for part in arguments)
                + " --master local pyspark-shell",
                "PYTHONPATH": str(SOURCE),
                "PYSPARK_PYTHON": python,
            },
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    sent = log.read_text(encoding="utf-8") if log.exists() else ""
    sent = sent.replace(home, "/tmp").replace(data, "/test_data")
    if broker is not None:
        sent = sent.replace(f":{broker.bootstrap.rpartition(':')[2]}", ":9092")
    return [json.loads(line) for line in sent.splitlines() if line], done.stderr[
        -2000:
    ] if done.returncode else ""


def differences(expected: Any, actual: Any, path: str = "") -> list[str]:
    """The places at which `actual` lacks what `expected` has."""
    if isinstance(expected, dict):
        if not isinstance(actual, dict):
            return [path]
        return [
            place
            for key, value in expected.items()
            for place in (
                differences(value, actual[key], f"{path}.{key}")
                if key in actual
                else [f"{path}.{key}: missing"]
            )
        ]
    if isinstance(expected, list):
        if not isinstance(actual, list):
            return [path]
        left, found = list(actual), []
        for place, value in enumerate(expected):
            best = min((differences(value, one, f"{path}[{place}]") for one in left), key=len, default=None)
            if best is None:
                found.append(f"{path}[{place}]: missing")
                continue
            if best:
                found += best
            else:
                left.pop(next(at for at, one in enumerate(left) if not differences(value, one)))
        return found
    if isinstance(expected, str) and expected.startswith("${json-unit."):
        kind, _, pattern = expected.removeprefix("${json-unit.").partition("}")
        if kind == "regex":
            return [] if re.fullmatch(pattern, str(actual)) else [f"{path}: {actual!r} is not {pattern}"]
        types: dict[str, Any] = {"any-string": str, "any-number": (int, float), "any-boolean": bool}
        return [] if isinstance(actual, types.get(kind, object)) else [f"{path}: {actual!r}"]
    return [] if expected == actual else [f"{path}: {actual!r} is not {expected!r}"]


def main() -> int:
    """Run the scripts and print a line for each file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--keep", type=Path, help="a folder for the events of each script")
    given = parser.parse_args()
    matched = total = 0
    ran: dict[tuple[Any, ...], tuple[list[dict[str, Any]], str]] = {}
    for test in tests(given.source):
        if given.only not in test.name:
            continue
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            key = (test.script, test.namespace, test.app_name, *sorted(test.settings.items()))
            if key not in ran:
                try:
                    ran[key] = run(given.source, test, Path(folder))
                except subprocess.TimeoutExpired:
                    ran[key] = ([], "the script did not end")
                except Missing as missing:
                    ran[key] = ([], f"not run: {missing}")
            events, error = ran[key]
        if given.keep is not None:
            given.keep.mkdir(parents=True, exist_ok=True)
            (given.keep / f"{test.name}.json").write_text(json.dumps(events, indent=1), encoding="utf-8")
        if error:
            print(f"       {test.name}: {error.strip().splitlines()[-1]}")
        for name in test.files:
            total += 1
            text = (given.source / FILES / name).read_text(encoding="utf-8")
            expected = json.loads(re.sub(r"\{spark_version\}|\$\{spark.version\}", pyspark.__version__, text))
            wanted = expected.get("eventType")
            same = [one for one in events if wanted is None or one.get("eventType") == wanted]
            best = min(
                (differences(expected, one) for one in same), key=len, default=["no event of this type"]
            )
            matched += not best
            print(
                f"{'match' if not best else '-----'}  {test.name}  {name}  {'; '.join(best[:6])}", flush=True
            )
    print(f"{matched} of {total} files match")
    return 0


if __name__ == "__main__":
    sys.exit(main())
