"""compose.yaml, the Kubernetes manifests, and what Prometheus and Grafana read, by their schemas and by our server."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import compose_spec
import pytest
import yaml

from serve.settings import Settings

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
sys.path.insert(0, str(ROOT / "tools"))
try:
    import render_manifests
finally:
    sys.path.pop(0)
VARIABLES = {"PADDLEPORT_" + name.upper() for name in Settings.__dataclass_fields__}
SUFFIXES = {"Counter": ["_total"], "Gauge": [""], "Histogram": ["_bucket", "_sum", "_count"]}


def exposed():
    """The series that serve/metrics.py makes, by its own source."""
    found = {"up"}
    source = (ROOT / "serve/metrics.py").read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id.endswith("MetricFamily"):
            kind = node.func.id.removesuffix("MetricFamily")
            if isinstance(node.args[0], ast.Constant):
                found |= {node.args[0].value + suffix for suffix in SUFFIXES[kind]}
    for name in re.findall(r'self\._histogram\("(\w+)"', source):
        found |= {f"paddleport_{name}{suffix}" for suffix in SUFFIXES["Histogram"]}
    return found


def expressions():
    rules = yaml.safe_load((DEPLOY / "monitoring/alerts.yaml").read_text(encoding="utf-8"))
    yield from (rule["expr"] for group in rules["groups"] for rule in group["rules"])
    board = json.loads((DEPLOY / "monitoring/grafana/dashboards/paddleport.json").read_text(encoding="utf-8"))
    yield from (target["expr"] for panel in board["panels"] for target in panel["targets"])


@pytest.mark.parametrize("expression", expressions())
def test_the_dashboard_and_the_alerts_ask_for_series_that_the_server_has(expression):
    named = set(re.findall(r"\bpaddleport_\w+", expression))
    assert named or "up{" in expression
    assert named <= exposed()
    assert set(re.findall(r'stage="(\w+)"', expression)) <= {"parse", "queue", "infer", "encode"}


def test_every_series_has_its_place_on_the_dashboard():
    shown = {name for expression in expressions() for name in re.findall(r"\bpaddleport_\w+", expression)}
    roots = {re.sub(r"_(total|bucket|sum|count)$", "", name) for name in exposed() - {"up"}}
    assert roots - {re.sub(r"_(total|bucket|sum|count)$", "", name) for name in shown} <= {"paddleport_build_info"}


def test_compose_fits_its_specification():
    # Merge keys are YAML's, and resolved before the specification is asked, as docker compose does.
    merged = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
    compose = compose_spec.PyCompose.from_yaml(yaml.safe_dump(merged))
    compose.validate()
    assert {"serve", "serve-gpu", "train", "prometheus", "grafana"} <= set(compose.service_names())


def test_the_check_of_compose_can_fail():
    with pytest.raises(ValueError, match=r"."):
        compose_spec.PyCompose.from_yaml("services: {a: {image: b, portz: [1]}}").validate()


def test_what_compose_builds_and_mounts_is_there():
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    for service in compose["services"].values():
        if "build" in service:
            assert f" AS {service['build']['target']}\n" in dockerfile
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            assert source in compose["volumes"] or source == "./models" or (ROOT / source).is_dir()
        assert {name for name in service.get("environment", {}) if name.startswith("PADDLEPORT_")} <= VARIABLES
    assert compose["services"]["serve-gpu"]["profiles"] == ["gpu"]


@pytest.mark.parametrize("overlay", render_manifests.OVERLAYS)
def test_the_rendered_manifests_are_in_step(overlay):
    rendered = (DEPLOY / "rendered" / f"{overlay}.yaml").read_text(encoding="utf-8")
    assert rendered == render_manifests.text_of(overlay), "run `make manifests`"


def validated(path):
    program = Path(sys.executable).parent / "kubernetes-validate"
    return subprocess.run([program, "--strict", path], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("overlay", ["cpu", "gpu"])
def test_kubernetes_takes_the_manifests(overlay):
    done = validated(DEPLOY / "rendered" / f"{overlay}.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (done.stdout + done.stderr).count(" passed ") == 5


def test_the_check_of_manifests_can_fail(tmp_path):
    broken = (DEPLOY / "rendered/cpu.yaml").read_text(encoding="utf-8").replace("containerPort:", "containerPorts:")
    (tmp_path / "broken.yaml").write_text(broken)
    assert validated(tmp_path / "broken.yaml").returncode != 0


def containers():
    for overlay in render_manifests.OVERLAYS:
        for one in yaml.safe_load_all((DEPLOY / "rendered" / f"{overlay}.yaml").read_text(encoding="utf-8")):
            spec = one.get("spec", {})
            yield from spec.get("containers", []) + spec.get("template", {}).get("spec", {}).get("containers", [])


def test_containers_run_unprivileged_on_a_read_only_root_with_settings_that_the_server_has():
    found = list(containers())
    assert len(found) == 3
    for container in found:
        context = container["securityContext"]
        assert context["readOnlyRootFilesystem"] is True
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert {"/tmp", "/var/cache/paddleport"} <= {mount["mountPath"] for mount in container["volumeMounts"]}
        assert {given["name"] for given in container["env"]} <= VARIABLES
        environment = {given["name"]: given["value"] for given in container["env"]}
        assert ("PADDLEPORT_AUTH_TOKEN_FILE" in environment) != ("PADDLEPORT_INSECURE" in environment)
        Settings.from_environment(environment)


def test_the_image_says_its_settings_as_the_server_reads_them():
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    given = dict(re.findall(r"(PADDLEPORT_\w+)=(\S+)", dockerfile.partition("FROM runtime AS serve\n")[2]))
    given.pop("PADDLEPORT_INSECURE", None)
    assert set(given) == {"PADDLEPORT_MODELS", "PADDLEPORT_HOST", "PADDLEPORT_PORT", "PADDLEPORT_CACHE"}
    assert str(Settings.from_environment(given).models) == "/models"


def test_a_kustomization_that_is_not_known_is_refused(tmp_path):
    (tmp_path / "kustomization.yaml").write_text("resources: []\ncommonLabels: {a: b}\n")
    with pytest.raises(ValueError, match="commonLabels"):
        render_manifests.render(tmp_path)
