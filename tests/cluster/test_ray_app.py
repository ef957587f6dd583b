"""The application that Ray's own tools begin, and the example for Kubernetes."""

import yaml

from melforge.common.cli.serve import parse, settings_from
from melforge.common.cluster.settings import RaySettings
from melforge.ray_app import words_of
from tests.cluster.conftest import ROOT


def test_arguments_are_the_options_of_serve():
    args = {"replicas": "2", "without_keys": "true", "warm_up": True, "debug": False, "voice": None}
    assert words_of(args) == ["--replicas=2", "--without-keys", "--warm-up"]


def test_the_example_for_kubernetes_has_options_that_there_are():
    document = yaml.safe_load((ROOT / "examples" / "ray" / "service.yaml").read_text())
    served = yaml.safe_load(document["spec"]["serveConfigV2"])["applications"][0]
    assert served["import_path"] == "melforge.ray_app:build"
    settings = settings_from(parse(words_of(served["args"])), RaySettings)
    assert (settings.replicas, settings.most, settings.ingresses) == (2, 16, 2)
    workers = document["spec"]["rayClusterConfig"]["workerGroupSpecs"][0]
    assert (
        workers["maxReplicas"]
        * int(workers["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"])
        >= settings.most
    ), "there is room for all replicas"
