"""No Python function sees a row: asserted on the plans of everything that Spark did for a load."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.pipeline.rig import Rig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PYTHON = ("Python", "ArrowEval", "MapInArrow", "MapInPandas", "FlatMapGroups", "PythonUDF")
MANY = 10_050  # distinct values, more than the driver looks up itself
MOMENT = "2026-11-16T10:00:00Z"


class Plans:
    """The plans of all queries that ran since it was made."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        session: Any = spark._jsparkSession
        self._store = session.sharedState().statusStore()
        self._before = {plan[0] for plan in self._all()}

    def _all(self) -> list[tuple[int, str]]:
        context: Any = self._spark.sparkContext._jsc
        context.sc().listenerBus().waitUntilEmpty()
        found = self._store.executionsList()
        return [
            (found.apply(i).executionId(), found.apply(i).physicalPlanDescription())
            for i in range(found.size())
        ]

    def new(self) -> list[str]:
        return [plan for id, plan in self._all() if id not in self._before]

    def with_python(self) -> list[str]:
        return [plan for plan in self.new() if any(word in plan for word in PYTHON)]


def test_only_distinct_values_reach_python_when_a_file_is_loaded(rig: Rig) -> None:
    events = [
        {
            "event_type": "view",
            "source_ip": f"8.{i >> 16}.{i >> 8 & 255}.{i & 255}",
            "_timestamp": MOMENT,
            "id": i,
            "mixed": i if i % 2 else "x",
            "deep": {"list": [i]},
        }
        for i in range(MANY)
    ]
    rig.file([*events, b"{torn", {"event_type": "", "id": 1}])
    rig.load({"event_type": "view", "id": "seven"}, table_name_template="view", primary_key=["id"])
    rig.file([*events, b"{torn"])
    plans = Plans(rig.spark)
    report = rig.cycle(
        rig.settings(
            {
                "table_name_template": "{{ event_type }}",
                "primary_key": ["id"],
                "enrichment": [{"name": "ip_lookup", "from": "/source_ip", "to": "/location"}],
                "mappings": {"fields": [{"src": "/mixed", "dst": "/moved", "action": "move"}]},
                "max_columns": 5,
            }
        )
    )
    assert report.is_complete
    assert plans.new()
    # one query runs Python: over a table of distinct values, not over events
    [lookup] = plans.with_python()
    assert "MapInArrow" in lookup
    assert "from_json" not in lookup
    assert "ReadSchema: struct<rule:int,value:string>" in lookup


def test_a_python_function_would_be_seen_when_a_plan_had_one(rig: Rig) -> None:
    from pyspark.sql import functions

    plans = Plans(rig.spark)
    rig.lines({"a": 1}).select(functions.udf(lambda line: line)("value")).collect()
    assert len(plans.with_python()) == 1
