"""The extension model: type arguments, calls of builders, and builders that fail or hang."""

from __future__ import annotations

import re
import threading
import time
from typing import Any, TypeVar

from headwater.lineage.datasets.catalogs import Catalogs
from headwater.lineage.events.build import EventBuilder
from headwater.lineage.extend.builders import (
    AbstractInputDatasetBuilder,
    AbstractInputDatasetFacetBuilder,
    AbstractJobFacetBuilder,
    AbstractOutputDatasetBuilder,
    AbstractOutputDatasetFacetBuilder,
    AbstractRunFacetBuilder,
    Consumer,
    CustomFacetBuilder,
    InputDatasetBuilder,
    OpenLineageContext,
    OpenLineageEventListenerFactory,
    OutputDatasetBuilder,
)
from headwater.lineage.extend.spark_objects import (
    RDD,
    ActiveJob,
    HadoopRDD,
    Stage,
    StageInfo,
    UnionRDD,
    run_objects,
)
from headwater.lineage.jvm.messages import AppStart, JobStart, StageDoc, StageDone
from headwater.lineage.runs import RunTracker
from headwater.lineage.settings import LineageSettings
from tests.sources import ROOT

R = TypeVar("R", bound=RDD)


class OfRdds(AbstractJobFacetBuilder[RDD]):
    """For every RDD."""

    def accept(self, event: RDD, consumer: Consumer) -> None:
        consumer("rdd", {"id": event.id})


class Between(AbstractRunFacetBuilder[R]):
    """Leaves the type to its children."""

    def accept(self, event: R, consumer: Consumer) -> None:
        consumer("between", {"cls": event.cls})


class OfHadoop(Between[HadoopRDD]):
    """Two steps below the generic class."""


class OfEither(AbstractRunFacetBuilder[HadoopRDD | Stage]):
    """For a union."""

    def accept(self, event: HadoopRDD | Stage, consumer: Consumer) -> None:
        consumer("either", {})


class OfAnything(CustomFacetBuilder[Any, Any]):
    """For everything."""

    def accept(self, event: Any, consumer: Consumer) -> None:
        consumer("anything", {})


def test_a_builder_is_defined_for_its_type_argument_when_it_says_nothing_else() -> None:
    rdd, hadoop, stage = RDD(1, "x.RDD"), HadoopRDD(2, "x.HadoopRDD"), Stage(1, "", 1)
    assert [OfRdds().is_defined_at(each) for each in (rdd, hadoop, stage)] == [True, True, False]
    assert [OfHadoop().is_defined_at(each) for each in (rdd, hadoop, stage)] == [False, True, False]
    assert [Between().is_defined_at(each) for each in (rdd, hadoop, stage)] == [True, True, False]
    assert [OfEither().is_defined_at(each) for each in (rdd, hadoop, stage)] == [False, True, True]
    assert all(OfAnything().is_defined_at(each) for each in (rdd, hadoop, stage, object()))


class Recorder(OpenLineageEventListenerFactory):
    """Records its calls, and creates one builder of each kind."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.seen: list[object] = []
        self.release = threading.Event()

    def set_open_lineage_context(self, context: OpenLineageContext) -> None:
        self.calls.append("context")
        self.context = context

    def _made(self, name: str, *builders: Any) -> list[Any]:
        self.calls.append(name)
        return list(builders)

    def create_input_dataset_query_plan_visitors(self) -> list[Any]:
        return self._made("input_visitors")

    def create_output_dataset_query_plan_visitors(self) -> list[Any]:
        return self._made("output_visitors")

    def create_input_dataset_builder(self) -> list[Any]:
        recorder = self

        class Inputs(AbstractInputDatasetBuilder[HadoopRDD]):
            def apply(self, event: HadoopRDD) -> list[InputDatasetBuilder]:
                recorder.seen.append(event)
                own = {"mine": {"path": event.paths[0]}}
                return [InputDatasetBuilder("custom", event.paths[0], own, input_facets={"only": {"x": 1}})]

        return self._made("inputs", Inputs())

    def create_output_dataset_builder(self) -> list[Any]:
        class Outputs(AbstractOutputDatasetBuilder[ActiveJob]):
            def apply(self, event: ActiveJob) -> list[OutputDatasetBuilder]:
                return [OutputDatasetBuilder("custom", f"job {event.id}")]

        return self._made("outputs", Outputs())

    def create_input_dataset_facet_builders(self) -> list[Any]:
        class InputFacets(AbstractInputDatasetFacetBuilder[StageInfo]):
            def accept(self, event: StageInfo, consumer: Consumer) -> None:
                consumer("stageInput", {"records": event.task_metrics.records_read})

        return self._made("input_facets", InputFacets())

    def create_output_dataset_facet_builders(self) -> list[Any]:
        class OutputFacets(AbstractOutputDatasetFacetBuilder[StageInfo]):
            def accept(self, event: StageInfo, consumer: Consumer) -> None:
                consumer("stageOutput", {"records": event.task_metrics.records_written})

        return self._made("output_facets", OutputFacets())

    def create_dataset_facet_builders(self) -> list[Any]:
        class Facets(CustomFacetBuilder[ActiveJob, Any]):
            def accept(self, event: ActiveJob, consumer: Consumer) -> None:
                consumer("everywhere", {"job": event.id})

        return self._made("dataset_facets", Facets())

    def create_run_facet_builders(self) -> list[Any]:
        class Broken(AbstractRunFacetBuilder[ActiveJob]):
            def accept(self, event: ActiveJob, consumer: Consumer) -> None:
                consumer("before", {})
                raise LookupError("broken on purpose")

        return self._made("run_facets", OfHadoop(), Broken())

    def create_job_facet_builders(self) -> list[Any]:
        recorder = self

        class Sleeper(AbstractJobFacetBuilder[ActiveJob]):
            def accept(self, event: ActiveJob, consumer: Consumer) -> None:
                recorder.calls.append("sleeps")
                recorder.release.wait(60)

        return self._made("job_facets", OfRdds(), Sleeper())


def finished_job(first: str = "file:/a") -> tuple[Any, Any]:
    """The run of an RDD job that reads two files, and its steps."""
    runs = RunTracker()
    runs.on_message(AppStart(id="app-1", name="App", time=1))
    chain = [
        {"id": 3, "cls": "org.apache.spark.rdd.UnionRDD", "parents": [1, 2]},
        {"id": 1, "cls": "org.apache.spark.rdd.HadoopRDD", "parents": [], "paths": [first]},
        {"id": 2, "cls": "org.apache.spark.rdd.HadoopRDD", "parents": [], "paths": ["file:/b/day=1"]},
    ]
    steps = runs.on_message(JobStart(id=7, time=2, rdds=chain, stages=[StageDoc(id=4, name="count")]))
    runs.on_message(StageDone(id=4, metrics={"records_read": 5, "records_written": 2, "bytes_written": 9}))
    return steps[0].run, steps


def builder(recorder: Recorder, deadline_millis: int = 10_000) -> EventBuilder:
    settings = LineageSettings(deadline_millis=deadline_millis)
    return EventBuilder(settings, Catalogs({}), [lambda: recorder])


CREATES = [
    "input_visitors",
    "output_visitors",
    "inputs",
    "outputs",
    "input_facets",
    "output_facets",
    "dataset_facets",
    "run_facets",
    "job_facets",
]


def test_each_create_method_is_called_once_and_after_the_context_when_events_are_built() -> None:
    recorder = Recorder()
    recorder.release.set()
    made = builder(recorder)
    run, _ = finished_job()
    for _ in range(3):
        made.build(run, "START", 2)
    calls = [call for call in recorder.calls if call != "sleeps"]
    assert calls[0] == "context"
    assert sorted(calls[1:]) == sorted(CREATES)
    assert recorder.context.run_facet_builders, "the collections are live"
    assert len(recorder.context.job_facet_builders) > 2


def test_facets_reach_all_datasets_or_the_one_they_were_made_with_when_an_event_is_built() -> None:
    recorder = Recorder()
    recorder.release.set()
    run, _ = finished_job()
    event = builder(recorder).build(run, "COMPLETE", 3)
    inputs = {(each["namespace"], each["name"]): each for each in event["inputs"]}
    # built-in and extension datasets, both trimmed
    assert sorted(inputs) == [("custom", "file:/a"), ("custom", "file:/b"), ("file", "/a"), ("file", "/b")]
    for each in event["inputs"]:
        assert each["inputFacets"]["stageInput"]["records"] == 5
        assert each["facets"]["everywhere"]["job"] == 7
    assert inputs["custom", "file:/b"]["facets"]["mine"]["path"] == "file:/b/day=1"
    assert "mine" not in inputs["file", "/a"]["facets"]
    assert inputs["custom", "file:/a"]["inputFacets"]["only"]["x"] == 1
    assert inputs["file", "/b"]["inputFacets"]["subset"]["inputCondition"]["locations"] == ["/b/day=1"]
    (output,) = event["outputs"]
    assert (output["name"], output["outputFacets"]["stageOutput"]["records"]) == ("job 7", 2)
    assert output["facets"]["everywhere"]["job"] == 7
    assert event["run"]["facets"]["between"]["cls"].endswith("HadoopRDD")
    assert event["job"]["facets"]["rdd"]["id"] == 2, "chains are flattened: each RDD is offered by itself"
    assert [type(each) for each in recorder.seen] == [HadoopRDD, HadoopRDD]
    assert all("_producer" in facet for facet in event["run"]["facets"].values())


def test_a_builder_loses_only_its_own_facets_when_it_raises() -> None:
    recorder = Recorder()
    recorder.release.set()
    run, _ = finished_job()
    event = builder(recorder).build(run, "COMPLETE", 3)
    (error,) = event["run"]["facets"]["extractionError"]["errors"]
    assert error["task"].endswith("Broken")
    assert error["errorMessage"] == "LookupError: broken on purpose"
    assert "before" not in event["run"]["facets"]
    assert "processing_engine" in event["run"]["facets"]


def test_a_builder_is_not_called_again_when_it_has_not_returned_in_time() -> None:
    recorder = Recorder()
    made = builder(recorder, deadline_millis=400)
    run, _ = finished_job()
    begun = time.monotonic()
    for _ in range(3):
        event = made.build(run, "COMPLETE", 3)
    recorder.release.set()
    assert time.monotonic() - begun < 30
    assert recorder.calls.count("sleeps") == 1
    tasks = [error["task"] for error in event["run"]["facets"]["extractionError"]["errors"]]
    assert any(task.endswith("Sleeper") for task in tasks)
    assert event["job"]["facets"]["rdd"]["id"] == 2, "other builders are still called"


def test_a_factory_is_left_out_when_it_cannot_be_made() -> None:
    def broken() -> OpenLineageEventListenerFactory:
        raise ImportError("no such thing")

    recorder = Recorder()
    recorder.release.set()
    made = EventBuilder(LineageSettings(), Catalogs({}), [broken, lambda: recorder])
    assert [error.text for error in made.extensions.errors] == ["ImportError: no such thing"]
    run, _ = finished_job()
    first = made.build(run, "START", 2)
    assert "no such thing" in first["run"]["facets"]["extractionError"]["errors"][0]["errorMessage"]


def test_facets_are_left_out_when_they_are_disabled() -> None:
    recorder = Recorder()
    recorder.release.set()
    settings = LineageSettings(disabled_facets=frozenset({"processing_engine", "everywhere", "stageInput"}))
    run, _ = finished_job()
    event = EventBuilder(settings, Catalogs({}), [lambda: recorder]).build(run, "COMPLETE", 3)
    assert "processing_engine" not in event["run"]["facets"]
    assert all("everywhere" not in each["facets"] for each in event["inputs"] + event["outputs"])
    assert all("stageInput" not in each["inputFacets"] for each in event["inputs"])


def test_the_pages_example_does_what_it_says_when_it_is_run() -> None:
    page = (ROOT / "docs" / "extending-lineage.md").read_text(encoding="utf-8")
    code = next(
        block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "LedgerFactory" in block
    )
    names: dict[str, Any] = {}
    exec(code, names)
    run, _ = finished_job("file:/books/2026.ledger")
    made = EventBuilder(LineageSettings(), Catalogs({}), [names["LedgerFactory"]])
    event = made.build(run, "COMPLETE", 3)
    books = [each for each in event["inputs"] if each["namespace"] == "ledger://books"]
    assert [(each["name"], sorted(each["facets"])) for each in books] == [("2026.ledger", ["ledgerBook"])]
    assert event["run"]["facets"]["lastStage"]["records"] == 5


def test_each_rdd_has_the_class_of_its_kind_when_a_chain_is_flattened() -> None:
    run, _ = finished_job()
    found = run_objects(run, None, [])
    assert [type(each) for each in found if isinstance(each, RDD)] == [UnionRDD, HadoopRDD, HadoopRDD]
    (stage,) = [each for each in found if isinstance(each, Stage)]
    assert stage.name == "count"
    (info,) = [each for each in found if isinstance(each, StageInfo)]
    assert info.task_metrics.records_read == 5
    assert info.jvm is None
