"""The application that Ray's own tools begin, and the example for Kubernetes."""

import sys
import types

import pytest
import yaml

from melforge.common.cli.serve import parse, settings_from
from melforge.common.cluster.connect import connected
from melforge.common.cluster.settings import PROXY_VARIABLES, RaySettings
from melforge.common.errors import InputError
from melforge.ray_app import words_of
from tests.cluster.conftest import ROOT
from tests.examples.test_triton_deployment import validate


def test_arguments_are_the_options_of_serve():
    args = {"replicas": "2", "without_keys": "true", "warm_up": True, "debug": False, "voice": None}
    assert words_of(args) == ["--replicas=2", "--without-keys", "--warm-up"]


def test_the_example_for_kubernetes_has_options_that_there_are():
    document, *state = yaml.safe_load_all((ROOT / "examples" / "ray" / "service.yaml").read_text())
    address = document["spec"]["rayClusterConfig"]["gcsFaultToleranceOptions"]["redisAddress"]
    assert [one["kind"] for one in state] == ["Service", "StatefulSet", "PodDisruptionBudget"]
    workers = document["spec"]["rayClusterConfig"]["workerGroupSpecs"][0]
    chosen = {"matchLabels": {"ray.io/group": workers["groupName"]}}
    (spread,) = workers["template"]["spec"]["topologySpreadConstraints"]
    assert state[2]["spec"]["selector"] == spread["labelSelector"] == chosen
    assert state[2]["spec"]["minAvailable"] < workers["minReplicas"], "nodes can be drained"
    assert address == f"{state[0]['metadata']['name']}:{state[0]['spec']['ports'][0]['port']}"
    served = yaml.safe_load(document["spec"]["serveConfigV2"])["applications"][0]
    assert served["import_path"] == "melforge.ray_app:build"
    settings = settings_from(parse(words_of(served["args"])), RaySettings)
    assert (settings.replicas, settings.most, settings.ingresses) == (2, 16, 2)
    assert (
        workers["maxReplicas"]
        * int(workers["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"])
        >= settings.most
    ), "there is room for all replicas"
    image = (ROOT / "examples" / "ray" / "Dockerfile").read_text()
    assert all(f"ENV {name}={value}\n" in image for name, value in PROXY_VARIABLES.items())


@pytest.mark.manifests
def test_what_is_beside_the_service_is_valid_on_kubernetes():
    _, *state = yaml.safe_load_all((ROOT / "examples" / "ray" / "service.yaml").read_text())
    for document in state:
        validate(document)


@pytest.mark.parametrize(
    ("address", "attempts", "message"),
    [
        ("local", 3, "Ray did not begin on this machine, which may be too busy"),
        ("10.0.0.5:6379", 1, "no Ray cluster at '10.0.0.5:6379': .* RAY_AUTH_MODE=token where"),
    ],
)
def test_a_cluster_that_does_not_begin_is_no_fault_of_ours(address, attempts, message, monkeypatch):
    """Ray raises a bare Exception where its parts take too long, which only a busy machine shows."""
    begun, slow = [], [True]

    def init(**_):
        begun.append(True)
        if len(begun) <= len(slow):
            raise Exception("The current node timed out during startup.")

    ray = types.SimpleNamespace(init=init, shutdown=lambda: None)
    monkeypatch.setitem(sys.modules, "ray", ray)
    if address == "local":
        with connected(address) as given:
            assert given is ray and len(begun) == 2, "a second attempt is enough"
        begun.clear()
    slow.extend([True] * 9)
    with pytest.raises(InputError, match=message), connected(address):
        pass
    assert len(begun) == attempts
