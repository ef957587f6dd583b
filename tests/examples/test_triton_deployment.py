"""The compose file and the Helm chart against the schemas of Compose and Kubernetes.

Helm itself renders the chart. Nothing here runs on a cluster.
"""

import subprocess
from pathlib import Path

import pytest
import yaml

FOLDER = Path(__file__).parents[2] / "examples" / "triton"
CHART = FOLDER / "helm"
OWN_CHART = FOLDER.parent / "kubernetes"  # of our own server: test_kubernetes.py
CPU = ("-f", str(CHART / "values-cpu.yaml"))
OLDEST = "1.30"  # Kubernetes
PROBE = ["python3", "/models/probe.py", "http://127.0.0.1:8000", "20"]
WATCHED = ["python3", "/models/watch.py", "tritonserver", "--model-repository=/models"]
pytestmark = pytest.mark.manifests


def helm(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["helm", *words], capture_output=True, text=True)


def rendered(*words: str) -> dict[str, dict]:
    """The chart's objects by their kinds."""
    run = helm("template", "speech", str(CHART), "--set", "image=speech:1", *words)
    assert run.returncode == 0, run.stderr
    found = [document for document in yaml.safe_load_all(run.stdout) if document]
    by_kind = {document["kind"]: document for document in found}
    assert len(by_kind) == len(found)
    return by_kind


def validate(document: dict) -> None:
    import kubernetes_validate

    if document["kind"] != "PodMonitor":  # which the Prometheus operator brings
        for version in (OLDEST, kubernetes_validate.latest_version()):
            kubernetes_validate.validate(document, version, strict=True)


@pytest.mark.parametrize(
    "words",
    [
        (),
        CPU,
        ("--set", "autoscaling.enabled=false,podMonitor.enabled=false"),
        ("--set", "cache.claim=engines,podMonitor.labels.release=prometheus,arguments={--log-verbose=1}"),
        ("--set-json", 'env=[{"name": "OMP_NUM_THREADS", "value": "1"}]', "--set-json", "resources={}"),
        ("--set-json", 'imagePullSecrets=[{"name": "key"}]', "--set", "nodeSelector.zone=a"),
    ],
)
def test_every_object_is_valid(words):
    objects = rendered(*words)
    for document in objects.values():
        validate(document)
    both = {"HorizontalPodAutoscaler", "PodMonitor"}
    off = "autoscaling.enabled=false,podMonitor.enabled=false" in words
    always = {"Deployment", "Service", "PodDisruptionBudget"}
    assert objects.keys() == always | (set() if off else both)
    assert ("replicas" in objects["Deployment"]["spec"]) == off


def test_objects_find_each_other():
    objects = rendered()
    deployment, autoscaler = objects["Deployment"], objects["HorizontalPodAutoscaler"]
    pod = deployment["spec"]["template"]
    for selector in (
        deployment["spec"]["selector"]["matchLabels"],
        objects["Service"]["spec"]["selector"],
        objects["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
        pod["spec"]["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"],
        objects["PodMonitor"]["spec"]["selector"]["matchLabels"],
    ):
        assert selector.items() <= pod["metadata"]["labels"].items()
    (container,) = pod["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"http": 8000, "grpc": 8001, "metrics": 8002}
    assert {port["targetPort"] for port in objects["Service"]["spec"]["ports"]} <= ports.keys()
    assert objects["PodMonitor"]["spec"]["podMetricsEndpoints"][0]["port"] in ports
    assert autoscaler["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    volumes = {volume["name"] for volume in pod["spec"]["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes
    metrics = [metric["pods"]["metric"]["name"] for metric in autoscaler["spec"]["metrics"]]
    adapter = yaml.safe_load((CHART / "prometheus-adapter.yaml").read_text())
    names = [rule["name"]["as"] for rule in adapter["rules"]["custom"]]
    assert names == metrics


def test_a_pod_lives_while_it_speaks():
    pod = rendered()["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    for name in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[name]["exec"]["command"] == PROBE
        assert container[name]["timeoutSeconds"] > 20
    assert container["startupProbe"]["failureThreshold"] * container["startupProbe"]["periodSeconds"] == 600
    assert (
        container["readinessProbe"]["periodSeconds"],
        container["readinessProbe"]["failureThreshold"],
    ) == (10, 1)
    grace = pod["terminationGracePeriodSeconds"] - 10  # of which 10 s are for the last requests to come
    assert container["args"][:4] == WATCHED
    assert int(container["args"][4].removeprefix("--exit-timeout-secs=")) < grace


@pytest.mark.parametrize(("words", "gpus"), [((), 1), (("--set", "gpus=2"), 2), (CPU, None)])
def test_gpus_are_asked_for_where_there_are_some(words, gpus):
    pod = rendered(*words)["Deployment"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["resources"]["limits"].get("nvidia.com/gpu") == gpus
    assert ("tolerations" in pod) == (gpus is not None)


@pytest.mark.parametrize(
    ("chart", "words", "message"),
    [
        (CHART, (), "image is missing: --set image=NAME"),
        (CHART, ("--set", "image=a,gpuss=1"), "'gpuss' not allowed"),
        (CHART, ("--set", "image=a,autoscaling.maxReplicas=many"), "got string, want integer"),
        (OWN_CHART, (), "image is missing: --set image=NAME"),
        (OWN_CHART, ("--set", "image=a"), "keys is missing: --set keys=NAME"),
        (OWN_CHART, ("--set", "image=a,keys=b,gpuss=1"), "'gpuss' not allowed"),
    ],
)
def test_wrong_values_are_errors(chart, words, message):
    run = helm("template", "speech", str(chart), *words)
    assert run.returncode != 0 and message in run.stderr


@pytest.mark.parametrize("values", sorted([*CHART.glob("values*.yaml"), *OWN_CHART.glob("values*.yaml")]))
def test_helm_finds_nothing_to_complain_about(values):
    given = "image=speech:1" + ",keys=secret" * (values.parent == OWN_CHART)
    run = helm("lint", "--strict", str(values.parent), "--set", given, "-f", str(values))
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_compose_file_is_valid():
    import compose_spec

    text = (FOLDER / "compose.yaml").read_text()
    compose = compose_spec.PyOptions(apply_merge=True).from_yaml(text)
    compose.validate()
    services = compose.to_dict()["services"]
    assert {tuple(service["profiles"]) for service in services.values()} == {("gpu",), ("cpu",)}
    for service in services.values():
        assert service["healthcheck"]["test"] == ["CMD", *PROBE]
        assert (FOLDER / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
        assert "TRITON_IMAGE" in service["build"]["args"]
    assert "deploy" in services["triton-gpu"] and "deploy" not in services["triton-cpu"]


def test_the_image_has_what_the_others_ask_for():
    lines = (FOLDER / "Dockerfile").read_text()
    for command in (WATCHED, PROBE):
        assert str(command).replace("'", '"') in lines
