"""Column lineage of wide and deep plans: time and edges while steps and columns double, up to 500 x 1,000.

    python -m bench.columns [--no-spark] [--without-jar]

Three shapes. *one*: each step replaces one column, as a chain of `withColumn` does. *all*: each step
replaces every column by a function of itself and its neighbour, so that inputs add up: the edges of the
result are what the time must be measured by. *opaque*: the same width through a Python function, every
output from every input. The plans are documents as PlanWriter.java writes them. Then Spark itself makes, and
Java walks, the first shape. Times are of the CPU, except for Java's walk.

At last whole applications write such a frame, with nothing, with Headwater, with openlineage-spark's jar, as
`bench.lineage` runs them: CPU of the threads that do lineage, and bytes of the two events.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import msgspec
from tests.parts.cache import Missing
from tests.parts.spark_versions import python_of

from bench.lineage import MODES, SPARK_VERSION, Received, Receiver, application, find_jar
from bench.lineage_job import Job, Measured
from headwater.lineage.columns.outputs import column_lineage_facet
from headwater.lineage.columns.written_columns import column_lineage
from headwater.lineage.jvm.plan import Node, Plan, read_plan
from headwater.lineage.naming.names import DatasetId

__all__ = ["main"]

POINTS = ((62, 125), (125, 250), (250, 500), (500, 1000))
CATALYST = "org.apache.spark.sql.catalyst.plans.logical"


def leaf(columns: int) -> dict[str, Any]:
    """A table of so many columns."""
    out = [[number, f"c{number}", "integer"] for number in range(columns)]
    return {"id": 0, "cls": "org.apache.spark.sql.execution.datasources.LogicalRelation", "out": out}


def plan(shape: str, steps: int, columns: int) -> Plan:
    """A plan of the shape; its root has the columns."""
    nodes = [leaf(columns)]
    now = list(range(columns))
    fresh = columns
    for step in range(1, steps + 1):
        places = range(columns) if shape == "all" else [step % columns]
        made = []
        after = list(now)
        for place in places:
            both = [["a", now[place]], ["a", now[(place + 1) % columns]]]
            made.append(["=", fresh, f"c{place}", ["f", "Add", both]])
            after[place] = fresh
            fresh += 1
        nodes.append(
            {"id": step, "cls": f"{CATALYST}.Project", "kids": [step - 1], "ex": {"projectList": made}}
        )
        now = after
    if shape == "opaque":
        numbers = [fresh + place for place in range(columns)]
        nodes.append({"id": steps + 1, "cls": f"{CATALYST}.MapInPandas", "kids": [steps], "in": [now]})
        now = numbers
    nodes[-1]["out"] = [[number, f"c{place}", "integer"] for place, number in enumerate(now)]
    return Plan(nodes=[_node(one) for one in nodes], root=len(nodes) - 1)


def _node(document: dict[str, Any]) -> Node:
    return msgspec.convert(document, Node)


def dataset(node: Node) -> list[DatasetId]:
    """One dataset behind every leaf."""
    return [DatasetId("bench", "wide")]


def measure(made: Plan) -> tuple[float, float, int]:
    """Seconds for the edges, seconds for the facet, and the number of edges."""
    begin = time.process_time()
    found = column_lineage(made, dataset)
    middle = time.process_time()
    column_lineage_facet(found, "bench")
    end = time.process_time()
    assert not found.cut, found.cut
    return middle - begin, end - middle, sum(len(inputs) for inputs in found.fields.values())


def spark_points() -> None:
    """Plans that Spark made: the time of Java's walk and of Python's reading as well."""
    from pyspark.sql import SparkSession, functions
    from tests.lineage.plans import Walker

    session = SparkSession.Builder().master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    walker = Walker(session)
    print("\nby Spark         walk ms   read ms  edges ms   document KB")
    for steps, columns in POINTS:  # for the last one Spark itself takes more than a minute
        frame = session.createDataFrame([], ", ".join(f"c{place} long" for place in range(columns)))
        for step in range(steps):
            place = step % columns
            frame = frame.withColumn(
                f"c{place}", functions.col(f"c{place}") + functions.col(f"c{(place + 1) % columns}")
            )
        analyzed = frame._jdf.queryExecution().analyzed()
        begin = time.perf_counter()
        text = walker.text(analyzed)
        spent = time.perf_counter() - begin
        walked = time.process_time()
        made = read_plan(text)
        read = time.process_time()
        seconds, _, _ = measure(made)
        print(
            f"{steps:5} x {columns:<5} {1000 * spent:12.1f} {1000 * (read - walked):9.1f}"
            f" {1000 * seconds:9.1f} {len(text) / 1024:13.0f}",
            flush=True,
        )
    session.stop()


def jar_points() -> None:
    """The first shape written by Spark, next to openlineage-spark's jar, where that can be had."""
    parts = {"warm": 3} | {f"steps@{columns}": steps for steps, columns in POINTS}
    receiver = Receiver()
    found: dict[str, tuple[list[Measured], dict[str, Received]]] = {}
    try:
        python, jar = python_of(SPARK_VERSION), str(find_jar())
        for mode in MODES:
            job = Job(mode, "", "", "", jar, {}, dict(parts), POINTS[-1][1])
            found[mode] = application(python, job, receiver)
    except Missing as missing:
        print(f"\nno figures of openlineage-spark: {missing}")
        return
    print("\nwritten by Spark   mode       cpu s  +own cpu s      bytes")
    for place, part in enumerate(parts, start=1):  # the first is the start of the session
        if not part.startswith("steps"):
            continue
        base = found["nothing"][0][place].own
        for mode, (measured, received) in found.items():
            each = measured[place]
            added = each.own - base
            print(
                f"{parts[part]:5} x {part.partition('@')[2]:<9} {mode:10} {each.cpu:6.2f} {added:11.3f}"
                f" {received.get(part, Received()).bytes:10}"
            )


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-spark", action="store_true", help="only the plans made here")
    parser.add_argument("--without-jar", action="store_true", help="nothing next to openlineage-spark")
    arguments = parser.parse_args()
    print("shape   steps x columns  edges ms  facet ms     edges  us per edge and step's column")
    for shape in ("one", "all", "opaque"):
        for steps, columns in POINTS:
            seconds, facet, edges = measure(plan(shape, steps, columns))
            work = edges + (steps * columns if shape == "all" else steps)
            print(
                f"{shape:7} {steps:5} x {columns:<7} {1000 * seconds:9.1f} {1000 * facet:9.1f} {edges:9}"
                f" {1e6 * (seconds + facet) / work:9.2f}",
                flush=True,
            )
    if not arguments.no_spark:
        spark_points()
        if not arguments.without_jar:
            jar_points()


if __name__ == "__main__":
    main()
