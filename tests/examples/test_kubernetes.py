"""The chart of our own server: Helm renders it, Kubernetes' schemas hold, and the server takes its words."""

import subprocess
from pathlib import Path

import pytest
import yaml

from melforge.common.cli.serve import parse
from melforge.common.serve.metrics import Metrics
from tests.examples.test_triton_deployment import helm, validate

CHART = Path(__file__).parents[2] / "examples" / "kubernetes"
GPU = ("-f", str(CHART / "values-gpu.yaml"))
pytestmark = pytest.mark.manifests


def rendered(*words: str) -> dict[str, dict]:
    """The chart's objects by their kinds."""
    run: subprocess.CompletedProcess[str] = helm(
        "template", "speech", str(CHART), "--set", "image=speech:1,keys=secret", *words
    )
    assert run.returncode == 0, run.stderr
    return {document["kind"]: document for document in yaml.safe_load_all(run.stdout) if document}


@pytest.mark.parametrize(
    "words",
    [
        (),
        GPU,
        ("--set", "autoscaling.enabled=false,podMonitor.enabled=false,networkPolicy.enabled=false"),
        ("--set-json", 'networkPolicy.from=[{"podSelector": {"matchLabels": {"asks": "speech"}}}]'),
        ("--set-json", 'env=[{"name": "OMP_NUM_THREADS", "value": "1"}]', "--set", "nodeSelector.zone=a"),
    ],
)
def test_every_object_is_valid_and_finds_the_others(words):
    objects = rendered(*words)
    for document in objects.values():
        validate(document)
    off = "autoscaling.enabled=false" in words[-1] if words else False
    some = {"HorizontalPodAutoscaler", "PodMonitor", "NetworkPolicy"}
    assert objects.keys() == {"Deployment", "Service", "PodDisruptionBudget"} | (set() if off else some)
    labels = objects["Deployment"]["spec"]["template"]["metadata"]["labels"]
    for kind in objects.keys() - {"HorizontalPodAutoscaler", "Service"}:
        spec = objects[kind]["spec"]
        assert spec.get("selector", spec.get("podSelector"))["matchLabels"].items() <= labels.items()
    assert objects["Service"]["spec"]["selector"].items() <= labels.items()
    if not off:
        target = objects["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]
        assert target["name"] == objects["Deployment"]["metadata"]["name"]


@pytest.mark.parametrize("words", [(), GPU])
def test_the_server_takes_the_words_of_its_container(words):
    pod = rendered(*words, "--set", "hosts={a.example,b.example}")["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["args"][:2] == ["melforge", "serve"]
    args = parse(container["args"][2:])
    assert (args.host, args.keys, args.hosts) == ("0.0.0.0", "/keys/keys", "a.example,b.example")
    assert pod["terminationGracePeriodSeconds"] >= 10 + args.grace, "also for the last requests to come"
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert {"/keys", "/cache", "/tmp"} == mounts


def test_the_autoscaler_asks_for_what_the_server_counts():
    (metric,) = rendered()["HorizontalPodAutoscaler"]["spec"]["metrics"]
    name = metric["pods"]["metric"]["name"]
    (rule,) = yaml.safe_load((CHART / "prometheus-adapter.yaml").read_text())["rules"]["custom"]
    assert rule["seriesQuery"].startswith(name + "{") and f"\n{name} 0.0" in Metrics().page().decode()
