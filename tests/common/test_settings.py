"""Settings of commands: what wins, what is refused, and what --print-hparams tells."""

import dataclasses
import importlib
import json
from pathlib import Path

import pytest
import yaml

from melforge.common.bench.workload import Loading, Subject, Workload, make_workloads
from melforge.common.cli import options
from melforge.common.cli.parser import Parser
from melforge.common.config.deployment import Deployment
from melforge.common.errors import InputError
from melforge.common.files import config_hash
from melforge.common.synthesis.loading import choose_sources, override
from melforge.common.weights.voices import load_voice
from tests.common.conftest import write
from tests.tables import read_tables

HPARAMS = Path(__file__).parents[2] / "hparams"


@pytest.fixture
def printed(infer, capsys):
    """The output of --print-hparams: as YAML, and as text."""

    def printed(*words: object):
        with pytest.raises(SystemExit) as stopped:
            infer("--print-hparams", *words)
        assert stopped.value.code == 0
        text = capsys.readouterr().out
        return yaml.safe_load(text), text

    return printed


def test_default_then_file_then_set_then_flag(infer, tmp_path):
    file = write(tmp_path, "pace: 0.9\nseed: 3\nretry: 1\nstrict: true\n")
    args = infer("--hparam", file, "--set", "seed=4", "--set", "retry=2", "--retry", "3")
    assert (args.volume, args.pace, args.seed, args.retry, args.strict) == (1.0, 0.9, 4, 3, True)
    places = {name: entry.place for name, entry in args.places.items()}
    assert "volume" not in places and {
        name: places[name] for name in ("pace", "seed", "retry", "strict")
    } == {"pace": f"{file}, line 1", "seed": "--set seed=4", "retry": "--retry", "strict": f"{file}, line 4"}
    # A flag with the default's value is a flag all the same, and of several files the last one wins.
    assert infer("--hparam", file, "--pace", "1").pace == 1.0
    assert infer("--hparam", file, "--hparam", write(tmp_path, "pace: 2", "b.yaml")).pace == 2.0


def test_a_file_gives_what_the_command_needs_and_flags_push_out_what_they_exclude(infer, tmp_path):
    parser = Parser()
    parser.add_argument("names", nargs="+")
    parser.add_argument("--one")
    parser.add_argument("--two", type=Path)
    parser.exclude("one", "two", required=True)
    file = write(tmp_path, "names: [a, b]\none: x\n")
    args = parser.parse_args(["--hparam", str(file)])
    assert (args.names, args.one, args.two) == (["a", "b"], "x", None)
    args = parser.parse_args(["--hparam", str(file), "--two", "y", "c"])
    assert (args.names, args.one, args.two) == (["c"], None, Path("y"))
    assert parser.parse_args(["~", "--two=~/y"]).two == Path.home() / "y"  # no shell does it there
    with pytest.raises(ValueError, match=r"line 1 and .*line 2: one and two exclude each other"):
        parser.parse_args(["--hparam", str(write(tmp_path, "one: x\ntwo: y", "b.yaml"))])


def test_what_is_missing_is_named():
    parser = Parser(prog="command.py")
    parser.add_argument("--corpus", required=True)
    with pytest.raises(InputError, match=r"^--corpus is missing \(see command.py --help\)$"):
        parser.parse_args([])


@pytest.mark.parametrize(("setting", "message"), read_tables(Path(__file__).parent / "cases.txt")["settings"])
def test_wrong_settings_are_refused_with_their_place(infer, setting, message):
    with pytest.raises(ValueError, match=message) as error:
        infer("--set", setting)
    assert str(error.value).startswith(f"--set {setting}: ")


def test_contradictory_buckets_name_their_lines(infer, tmp_path):
    lists = "trt_max_input_seq_len_list: [32, 64]\ntrt_max_output_seq_len_list: [256]\n"
    file = write(tmp_path, f"model: fastpitch\n{lists}trt_multi_engine: true\n")
    with pytest.raises(ValueError, match=r"my\.yaml, line 2 and .*my\.yaml, line 3: the buckets' lists c"):
        infer("--hparam", file)


def test_a_models_file_selects_it_and_says_how_it_is_run(infer, tmp_path):
    mine = write(
        tmp_path, f"parent_yaml: {HPARAMS}/fastpitch/trt_multi_engine.yaml\nuse_trt: false\npace: 0.8"
    )
    vocoder = write(tmp_path, f"parent_yaml: {HPARAMS}/hifigan/infer.yaml\nbatch_size: 3", "vocoder.yaml")
    args = infer("--hparam", mine, "--hparam", vocoder, "--set", "hifigan.engine_memory_limit=100")
    assert (args.acoustic, args.vocoder, args.pace) == ("fastpitch", "hifigan", 0.8)
    buckets = args.deployments["fastpitch"].buckets("acoustic")
    assert [str(bucket) for bucket in buckets] == ["32x256", "64x512", "96x768", "128x1024"]
    assert args.deployments["hifigan"] == Deployment(batch_size=3, engine_memory_limit=100)
    # A file's sizes yield to those of the weights.
    assert args.overrides == {"fastpitch": {}, "hifigan": {}}
    assert infer("--hparam", mine, "--batch-size", "5").deployments["fastpitch"].batch_size == 5


def test_files_of_other_models_are_refused(infer, tmp_path):
    file = HPARAMS / "fastpitch" / "infer.yaml"
    with pytest.raises(ValueError, match="is a file of fastpitch, but --acoustic says tacotron2"):
        infer("--acoustic", "tacotron2", "--hparam", file)
    with pytest.raises(ValueError, match=r"is a file of fastpitch, but .*tacotron2.*yaml says tacotron2"):
        infer("--hparam", HPARAMS / "tacotron2" / "infer.yaml", "--hparam", file)
    with pytest.raises(ValueError, match=r"is a file of hifigan \(.*\), but it runs no vocoder"):
        Parser(prog="it", kinds=("acoustic",)).parse_args(["--hparam", str(HPARAMS / "hifigan/infer.yaml")])
    with pytest.raises(ValueError, match="but it runs no model"):
        Parser(prog="it").parse_args(["--hparam", str(file)])
    with pytest.raises(ValueError, match=r"line 1: unknown model 'fastpich': did you mean 'fastpitch'"):
        infer("--hparam", write(tmp_path, "model: fastpich"))


def test_trt_is_the_backend_of_the_models_that_ask_for_it(infer):
    half, full = (HPARAMS / "fastpitch" / f"{name}.yaml" for name in ("trt_fp16", "trt"))
    assert infer("--hparam", half).backend == "fastpitch=trt,hifigan=onnx"
    assert infer("--hparam", half, "--hparam", HPARAMS / "hifigan" / "trt.yaml").backend == "trt"
    assert infer("--hparam", full, "--backend", "onnx").backend == "onnx"
    with pytest.raises(ValueError, match=r"trt_fp16\.yaml, line 4 \(use_fp16\): precision fp16 is for the"):
        infer("--hparam", half, "--set", "backend=onnx")


def test_buckets_for_a_gpu_that_is_not_there(infer, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    words = "--hparam", HPARAMS / "fastpitch" / "trt.yaml"
    for more, message in (
        ((), "the backend trt on cuda: PyTorch sees no GPU here; use the backend onnx"),
        (
            ("--backend", "torch", "--device", "cuda"),
            "torch on cuda: PyTorch sees no GPU here; use the device cpu",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            options.load_from(infer(*words, *more))


def test_printing_tells_every_value_and_its_place(printed):
    file = HPARAMS / "fastpitch" / "trt.yaml"
    values, text = printed(
        *("--hparam", file, "--backend", "onnx", "--set", "mask_padding=false", "--pace", "0.9")
    )
    assert (values["pace"], values["vocoder"], values["checkpoint"]) == (0.9, "hifigan", [])
    assert values["fastpitch"]["trt_max_input_seq_len"] == 128
    assert values["fastpitch"]["symbols_embedding_dim"] == 32
    assert values["fastpitch"]["mask_padding"] is values["hifigan"]["mask_padding"] is False
    lines = text.splitlines()
    assert f"acoustic: fastpitch  # {file}" in lines
    assert "pace: 0.9  # --pace" in lines and "volume: 1.0  # default" in lines
    (size,) = (line for line in lines if line.startswith("  symbols_embedding_dim"))
    assert "voice.yaml (" in size and size.endswith("base.yaml, line 7, says 384)")
    (mask,) = (line for line in lines if line.startswith("  mask_padding") and "says" in line)
    assert "# --set mask_padding=false (" in mask and mask.endswith("voice.yaml says true)")


def test_recipes_print_theirs_too(monkeypatch, capsys):
    from melforge.hifigan.train import main

    monkeypatch.chdir(HPARAMS.parent)
    monkeypatch.setattr("sys.argv", ["train.py", "--print-hparams", "--set", "batch_size=9"])
    with pytest.raises(SystemExit):
        main()
    text = capsys.readouterr().out
    values = yaml.safe_load(text)
    assert (values["model"], values["batch_size"], values["resblock"]) == ("hifigan", 9, "2")
    assert "batch_size: 9  # --set batch_size=9" in text and "corpus: null  # missing" in text
    assert "resblock: '2'  # hparams/hifigan/v3.yaml, line" in text
    monkeypatch.setattr("sys.argv", ["train.py", "--hparam", "hparams/waveglow/train.yaml"])
    with pytest.raises(ValueError, match=r"is a file of waveglow \(.*line 2\), not of hifigan"):
        main()


def test_another_config_needs_other_graphs(tiny_voice):
    source = load_voice(tiny_voice).source("fastpitch")
    assert override(source, {}) is source
    assert override(source, {"mask_padding": True, "mel_fmax": 8000.0}).graphs == source.graphs
    other = override(source, {"mask_padding": False})
    assert other.graphs == {} and other.config == dataclasses.replace(source.config, mask_padding=False)
    assert config_hash(other.config) != config_hash(source.config) and other.networks is not source.networks
    with pytest.raises(ValueError, match="unknown hyper-parameter of fastpitch 'mask_paddin'"):
        override(source, {"mask_paddin": True})
    chosen = choose_sources(
        {"acoustic": None, "vocoder": None}, tiny_voice, overrides={"fastpitch": {"mask_padding": False}}
    )
    assert chosen["acoustic"].config == other.config and chosen["vocoder"].graphs


@pytest.mark.parametrize(
    "values, words",
    [
        ({"sampling_rate": 16000}, "sampling_rate 22050, not 16000"),
        ({"hop_length": 200, "mel_fmax": None}, "hop_length 256, not 200, mel_fmax 8000.0, not null"),
    ],
)
def test_another_mel_than_the_weights_were_trained_with_is_refused(tiny_voice, trained, values, words):
    """Both models would agree in it, and the speech be slow."""
    both = {model: values for model in ("fastpitch", "hifigan")}
    wanted = {"acoustic": None, "vocoder": None}
    for checkpoints in ((), (f"vocoder={trained['hifigan']}", f"acoustic={trained['fastpitch']}")):
        with pytest.raises(InputError, match=f"safetensors was trained with {words}: leave that setting out"):
            choose_sources(wanted, tiny_voice, checkpoints, both)


def test_a_published_checkpoints_mel_can_be_set():
    golden = Path(__file__).parents[1] / "golden"
    checkpoints = [str(golden / model / "checkpoint.pt") for model in ("fastpitch", "waveglow")]
    both = {model: {"sampling_rate": 16000} for model in ("fastpitch", "waveglow")}
    sources = choose_sources({"acoustic": None, "vocoder": None}, None, checkpoints, both)
    assert all(source.mel.sampling_rate == 16000 for source in sources.values())


def test_the_benchmark_hands_settings_to_its_processes(infer):
    deployments = {"fastpitch": Deployment(batch_size=2, trt_max_output_seq_len_list=(64, 128))}
    loading = Loading(deployments=deployments, overrides={"fastpitch": {"n_speakers": 1}})
    workload = Workload(Subject("fastpitch", "hifigan"), loading=loading)
    args = infer(*workload.arguments)
    assert args.deployments["fastpitch"] == deployments["fastpitch"]
    assert args.overrides["fastpitch"] == {"n_speakers": 1}


def test_what_is_built_is_listed(tiny_voice, monkeypatch, capsys, tmp_path):
    from melforge.common.cli.list import list_available

    monkeypatch.setenv("MELFORGE_VOICES", str(tiny_voice.parent))
    monkeypatch.setenv("MELFORGE_CACHE", str(tmp_path))
    cached = tmp_path / "onnx" / "waveglow-abc-def-3"
    cached.mkdir(parents=True)
    (cached / "generator.onnx").write_bytes(b"x" * 2_000_000)
    (tmp_path / "trt").mkdir()
    (tmp_path / "trt" / "hifigan.generator.fp16.0a1b.trt").write_bytes(b"x" * 1_000_000)
    list_available(as_json=True)
    built = json.loads(capsys.readouterr().out)["built"]
    found = {(one["owner"], one["model"], one["part"]): one["mb"] for one in built}
    assert (
        found["tiny", "fastpitch", "encoder"] > 0 and found["cache abc-def-3", "waveglow", "generator"] == 2.0
    )
    list_available(as_json=False)
    assert "waveglow.generator" in capsys.readouterr().out


def test_precision_counts_for_the_models_on_trt(infer, tmp_path):
    def precisions(*words: object) -> list[str]:
        deployments = infer(*words).deployments
        return [deployments[model].precision for model in ("fastpitch", "hifigan")]

    assert precisions("--backend", "trt", "--precision", "fp16") == ["fp16", "fp16"]
    assert precisions("--backend", "acoustic=trt,vocoder=onnx", "--precision", "fp16") == ["fp16", "fp32"]
    half = HPARAMS / "fastpitch" / "trt_fp16.yaml"
    assert precisions("--hparam", half) == ["fp16", "fp32"]
    assert precisions("--hparam", half, "--precision", "fp32") == ["fp32", "fp32"]
    assert precisions("--hparam", half, "--backend", "onnx", "--precision", "fp32") == ["fp32", "fp32"]
    assert precisions("--hparam", write(tmp_path, "precision: fp16\nbackend: trt")) == ["fp16", "fp16"]
    assert precisions("--backend", "trt", "--set", "hifigan.precision=fp16") == ["fp32", "fp16"]
    # The option wins over --set, and what is said of one model over what is said of all.
    assert precisions("--backend", "trt", "--precision", "fp32", "--set", "use_fp16=true") == ["fp32"] * 2
    words = ("--backend", "trt", "--precision", "fp16", "--set", "fastpitch.use_fp16=false")
    assert precisions(*words) == ["fp32", "fp16"]


def test_a_models_own_backend_is_said_in_its_file_or_by_name(infer, tmp_path):
    mine = write(tmp_path, "model: hifigan\nbackend: torch")
    assert infer("--hparam", mine).backend == "fastpitch=onnx,hifigan=torch"
    assert infer("--hparam", mine, "--set", "backend=trt").backend == "trt"
    assert (
        infer("--backend", "torch", "--set", "hifigan.backend=onnx").backend == "fastpitch=torch,hifigan=onnx"
    )
    trt = HPARAMS / "hifigan" / "trt.yaml"
    assert infer("--hparam", trt, "--set", "use_trt=false").backend == "onnx"


def test_one_key_builds_no_voice_and_no_stages(infer, monkeypatch):
    """What is typed is all that is looked at; which models run is asked of the voice's file."""
    monkeypatch.setattr("melforge.common.weights.voices.read_voice", None)
    monkeypatch.setattr("melforge.common.registry.ModelSpec.module", refuse_stages)
    assert infer("--set", "fastpitch.batch_size=4").deployments["fastpitch"].batch_size == 4


def refuse_stages(spec, name: str):
    assert name == "config"
    return importlib.import_module(f"melforge.{spec.name}.{name}")


def test_a_benchmark_names_only_a_workloads_own_models():
    fp16 = {name: Deployment(precision="fp16") for name in ("fastpitch", "tacotron2", "hifigan")}
    text = "fastpitch=trt,tacotron2=onnx,hifigan=onnx"
    subjects = [Subject(name, "hifigan") for name in ("fastpitch", "tacotron2")]
    first, second = make_workloads(subjects, [text], Loading(deployments=fp16))
    assert (first.backend, first.device) == ("fastpitch=trt,hifigan=onnx", "auto")
    assert (second.backend, second.device) == ("tacotron2=onnx,hifigan=onnx", "cpu")
    assert first.arguments[-2:] == ["--set", "fastpitch.precision=fp16"]
    assert second.loading.deployments == {name: Deployment() for name in ("tacotron2", "hifigan")}
    assert [one.backend for one in make_workloads(subjects[:1], ["onnx,trt"], Loading())] == ["onnx", "trt"]


def test_one_engine_file_asked_for_beside_a_files_list_is_refused(infer):
    file = HPARAMS / "hifigan" / "trt_multi_engine.yaml"
    words = ("--hparam", file, "--backend", "trt", "--set", "hifigan.trt_file_path=x.trt")
    with pytest.raises(InputError) as refused:
        infer(*words)
    assert f"hifigan has an engine for each bucket, whose files {file}, line 5 names" in str(refused.value)
    how = infer(*words, "--set", "hifigan.trt_multi_engine=false").deployments["hifigan"]
    assert how.trt_file_path == "x.trt" and not how.trt_multi_engine
