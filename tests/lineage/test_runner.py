"""Scripts run as they would without lineage: `__main__`, argv, path, output, tracebacks, exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.lineage.conftest import validate
from tests.sources import ROOT

LINEAGE = [sys.executable, "-m", "headwater.lineage"]
COMMAND = [sys.executable, "-m", "headwater", "lineage", "run"]
# a JVM that starts on a machine at load twenty needs minutes
EXIT_SECONDS = 800
pytestmark = pytest.mark.timeout(900)

WITHOUT_SPARK = {
    "says-what-it-sees": """
        import sys
        import __main__
        print(__name__, __file__, sys.argv, sys.path[0], __main__.__dict__ is globals(), __spec__, __doc__)
    """,
    "raises": "def f():\\n    raise ValueError('no')\\nf()\\n",
    "raises-from": "try:\\n    1 / 0\\nexcept ZeroDivisionError as e:\\n    raise KeyError('x') from e\\n",
    "exits-3": "import sys\\nsys.exit(3)\\n",
    "exits-by-text": "raise SystemExit('because')\\n",
    "exits-well": "import sys\\nprint('done')\\nsys.exit()\\n",
    "is-no-python": "def f(:\\n",
    "pickles-its-own": "import pickle\\nclass A: pass\\nprint(type(pickle.loads(pickle.dumps(A()))) is A)\\n",
    # A shell starts background processes with SIGINT ignored, and Python leaves it so.
    "interrupted": """
    import os, signal, time
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)
    """,
    "killed": "import os, signal\\nos.kill(os.getpid(), signal.SIGKILL)\\n",
}


def run(command: list[str], folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("OPENLINEAGE")}
    return subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=EXIT_SECONDS,
        # a slow machine must not lose the last events
        env=inherited | {"PYTHONPATH": str(ROOT), "OPENLINEAGE__HEADWATER__EXIT_MILLIS": "300000"} | environ,
    )


@pytest.mark.parametrize("name", WITHOUT_SPARK)
def test_a_script_behaves_as_under_python_when_it_is_run_with_lineage(name: str, tmp_path: Path) -> None:
    text = WITHOUT_SPARK[name].replace("\\n", "\n")
    lines = text.splitlines()
    indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    (tmp_path / "script.py").write_text("\n".join(line[indent:] for line in lines) + "\n")
    plain = run([sys.executable, "script.py", "a", "--b"], tmp_path)
    with_lineage = run([*LINEAGE, "script.py", "a", "--b"], tmp_path)
    assert (with_lineage.returncode, with_lineage.stdout, with_lineage.stderr) == (
        plain.returncode,
        plain.stdout,
        plain.stderr,
    )


def test_the_command_line_passes_everything_on_when_a_script_has_options(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import sys\nprint(sys.argv[1:])\nsys.exit(7)\n")
    done = run([*COMMAND, "script.py", "--help", "-x", "--", "y"], tmp_path)
    assert (done.returncode, done.stdout) == (7, "['--help', '-x', '--', 'y']\n")


def test_a_missing_script_has_pythons_error_when_it_is_run(tmp_path: Path) -> None:
    plain = run([sys.executable, "nothing.py"], tmp_path)
    with_lineage = run([*LINEAGE, "nothing.py"], tmp_path)
    assert (with_lineage.returncode, with_lineage.stderr) == (plain.returncode, plain.stderr)


def test_a_module_is_run_when_it_is_named_so(tmp_path: Path) -> None:
    (tmp_path / "some_module.py").write_text("import sys\nprint(__name__, sys.argv[1:])\nsys.exit(4)\n")
    done = run([*LINEAGE, "-m", "some_module", "a"], tmp_path)
    assert (done.returncode, done.stdout) == (4, "__main__ ['a']\n")


JOB = """
import sys
from pyspark.sql import SparkSession
spark = (
    SparkSession.builder.master("local[1]").appName("Nightly Load")
    .config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
    .config("spark.sql.shuffle.partitions", "1").config("spark.sql.warehouse.dir", sys.argv[1])
    .getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")
spark.range(5).write.parquet(sys.argv[1] + "/out")
print("rows", spark.read.parquet(sys.argv[1] + "/out").count())
"""


def read_events(path: Path) -> list[dict[str, Any]]:
    events = [json.loads(line) for line in path.read_text().splitlines()]
    validate(events)
    return events


def ends(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(event["job"]["name"], event["eventType"]) for event in events if event["eventType"] != "START"]


@pytest.mark.long
def test_the_application_fails_when_an_unchanged_script_dies_under_headwater_lineage_run(
    tmp_path: Path,
) -> None:
    (tmp_path / "job.py").write_text(JOB + "spark.stop()\nraise ValueError('too late')\n")
    (tmp_path / "openlineage.yml").write_text(
        f"transport: {{type: file, log_file_path: {tmp_path}/events.jsonl, append: true}}\nnamespace: shop\n"
    )
    done = run([*COMMAND, "job.py", str(tmp_path / "data")], tmp_path)
    assert done.returncode == 1, done.stderr
    assert done.stdout == "rows 5\n"
    assert done.stderr.rstrip().endswith("ValueError: too late")
    assert "run_script.py" not in done.stderr
    events = read_events(tmp_path / "events.jsonl")
    assert {event["job"]["namespace"] for event in events} == {"shop"}
    assert ends(events)[-1] == ("nightly_load", "FAIL")
    assert "too late" in events[-1]["run"]["facets"]["errorMessage"]["message"]
    assert sum(state == "COMPLETE" for _, state in ends(events)) == 2


@pytest.fixture(scope="module")
def hanging(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], list[Any]]:
    """A script under the environment variable that exits with 1, whose transport hangs at the last event."""
    folder = tmp_path_factory.mktemp("hanging")
    head, body = JOB.split("spark = (")
    lines = "".join(f"    {line}\n" for line in ("spark = (" + body).splitlines())
    (folder / "job.py").write_text(f"{head}def main():\n{lines}    return 1\nsys.exit(main())\n")
    done = run(
        [sys.executable, "job.py", str(folder / "data")],
        folder,
        HEADWATER_LINEAGE="1",
        HANGING_EVENTS=str(folder / "events.jsonl"),
        OPENLINEAGE__TRANSPORT__TYPE="tests.lineage.faulty.HangingTransport",
        OPENLINEAGE__HEADWATER__EXIT_MILLIS="10000",
    )
    return done, read_events(folder / "events.jsonl")


def test_the_application_fails_when_a_script_under_the_environment_variable_exits_with_one(
    hanging: tuple[subprocess.CompletedProcess[str], list[Any]],
) -> None:
    _, events = hanging
    assert ends(events)[-1] == ("nightly_load", "FAIL")
    assert events[-1]["run"]["facets"]["errorMessage"]["message"] == "exit code 1"


def test_the_job_ends_as_it_would_when_the_transport_hangs(
    hanging: tuple[subprocess.CompletedProcess[str], list[Any]],
) -> None:
    done, _ = hanging
    assert (done.returncode, done.stdout) == (1, "rows 5\n"), done.stderr


EXITS = {
    "sys.exit": ("sys.exit(3)", "exit code 3"),
    "exit": ("exit(1)", "exit code 1"),
    "quit": ("quit('why')", "why"),
    "well": ("sys.exit(0)", None),
    "uncaught": ("raise ValueError('no')", "ValueError: no"),
}


@pytest.mark.parametrize("name", EXITS)
def test_the_exit_is_known_at_exit_when_a_script_has_a_context(name: str, tmp_path: Path) -> None:
    """Without Spark: a module of its name is enough for the hook."""
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").touch()
    (tmp_path / "pyspark" / "context.py").write_text(
        "class SparkContext:\n    def __init__(self):\n        self._do_init()\n"
        "    def _do_init(self):\n        pass\n"
    )
    statement, expected = EXITS[name]
    (tmp_path / "job.py").write_text(
        "import atexit, sys\n"
        "from headwater.lineage.process.exit_status import exit_status\n"
        "from headwater.lineage.process.spark_hook import hook_spark, unhook_spark\n"
        "hook_spark(lambda context: print('context'), print)\n"
        "from pyspark.context import SparkContext\n"
        "SparkContext()\n"
        "unhook_spark()\n"
        "SparkContext()\n"
        "atexit.register(lambda: print(exit_status.failure and exit_status.failure.text))\n"
        f"{statement}\n"
    )
    done = run([sys.executable, "job.py"], tmp_path, PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")
    assert done.stdout == f"context\n{expected}\n", done.stderr


def test_nothing_of_headwater_is_loaded_when_the_environment_variable_is_not_set(tmp_path: Path) -> None:
    code = (
        "import sys; print([name for name in sys.modules if name.split('.')[0] in ('headwater', 'pyspark')])"
    )
    assert run([sys.executable, "-c", code], tmp_path).stdout == "[]\n"
    loaded = run([sys.executable, "-c", code], tmp_path, HEADWATER_LINEAGE="1").stdout
    assert "headwater.lineage.process.spark_hook" in loaded
    assert "pyspark" not in loaded
    assert "install" not in loaded
