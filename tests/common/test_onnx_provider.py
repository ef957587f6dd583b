"""Which of ONNX Runtime's providers a session runs on, and what is refused. None but the CPU's runs here."""

import onnxruntime
import pytest

from melforge.common.cli.speak import main
from melforge.common.config.deployment import Deployment
from melforge.common.engines.onnx_engine import gpu_providers, providers
from melforge.common.runner import TextToSpeech

ALL = ["TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider"]


def test_tensorrt_comes_before_cuda_and_cuda_before_the_cpu(tmp_path, monkeypatch):
    monkeypatch.setenv("MELFORGE_CACHE", str(tmp_path))
    tensorrt, cuda, cpu = gpu_providers("tensorrt", 1, 77)
    assert tensorrt == (
        "TensorrtExecutionProvider",
        {
            "device_id": 1,
            "user_compute_stream": "77",
            "trt_timing_cache_enable": True,
            "trt_timing_cache_path": str(tmp_path / "trt"),
        },
    )
    assert [cuda, cpu] == gpu_providers("cuda", 1, 77) == gpu_providers(None, 1, 77)
    assert cuda[1] == {"device_id": 1, "user_compute_stream": "77", "cudnn_conv_algo_search": "HEURISTIC"}
    assert "user_compute_stream" not in gpu_providers("tensorrt", 0, 0)[0][1]
    assert providers("cpu") == [cpu] == ["CPUExecutionProvider"]


@pytest.mark.parametrize("provider, words", [("tensorrt", "TensorRT"), ("cuda", "CUDA")])
def test_a_provider_that_is_not_installed_is_refused(provider, words, tiny_voice, monkeypatch):
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ALL[-1:])
    how = {model: Deployment(onnx_provider=provider) for model in ("fastpitch", "hifigan")}
    with pytest.raises(ValueError, match=f"{provider}: this ONNX Runtime has no {words} provider"):
        TextToSpeech.load(voice=tiny_voice, deployments=how)


def test_a_gpus_provider_is_refused_on_the_cpu(tiny_voice, monkeypatch):
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ALL)
    how = {"fastpitch": Deployment(onnx_provider="tensorrt")}
    with pytest.raises(ValueError, match=r"onnx_provider tensorrt: .* runs on a GPU, not on the CPU"):
        TextToSpeech.load(voice=tiny_voice, device="cpu", deployments=how)


def test_an_unknown_provider_is_refused_with_those_that_are_known(tiny_voice):
    words = ["--voice", str(tiny_voice), "--text", "Hello.", "--onnx-provider", "openvino"]
    with pytest.raises(ValueError, match=r"--onnx-provider=openvino: unknown onnx_provider .*cuda, tensorrt"):
        main(words)
