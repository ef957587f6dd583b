"""The names that NVIDIA's programs have for settings: in files, in `--set`, and as options."""

import re
from pathlib import Path

import pytest

from melforge.common.audio.contract import MelContract
from melforge.common.cli import option, options
from melforge.common.cli.build import main as build
from melforge.common.cli.options import controls_from
from melforge.common.cli.parser import Parser
from melforge.common.cli.speak import make_parser as speak_parser
from melforge.common.cli.speak import parse
from melforge.common.config.aliases import ALIASES, SWITCHES
from melforge.common.config.deployment import Deployment
from melforge.common.config.hparams import load_hparams
from melforge.common.errors import InputError
from melforge.common.registry import MODELS
from tests.common.conftest import write
from tests.tables import read_tables


def test_a_file_may_have_nvidias_keys(tmp_path, infer):
    file = write(tmp_path, "checkpoint_path: a.pt\nsr: 22050\nn_fft: 1024\nwin_len: 1024\nnum_mels: 80\n")
    assert load_hparams(write(tmp_path, "sr: 16000\nhop_len: 200\n"), MelContract)[0].hop_length == 200
    parser = Parser()
    parser.add_argument("--checkpoint", action="append")
    args = parser.parse_args(["--hparam", str(write(tmp_path, "checkpoint_path: a.pt\n"))])
    assert (
        args.checkpoint == ["a.pt"] and args.places["checkpoint"].place == f"{file}, line 1 (checkpoint_path)"
    )


def test_a_child_files_alias_wins_over_its_parents_key(tmp_path):
    (tmp_path / "base.yaml").write_text("hop_length: 256\n")
    child = write(tmp_path, "parent_yaml: base.yaml\nhop_len: 200\n")
    assert load_hparams(child, MelContract)[0].hop_length == 200
    assert load_hparams(child, MelContract, overrides=["hop_len=100"])[0].hop_length == 100


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "hop_len: 2\nhop_length: 2",
            "line 1 (hop_len) and FILE, line 2: hop_len and hop_length are names of",
        ),
        ("hop_len: many", "line 1 (hop_len): hop_length must be a whole number, not 'many'"),
        ("hop_len: 0", "line 1 (hop_len): mel contract: hop_length must be positive, not 0"),
    ],
)
def test_what_is_wrong_in_a_file_is_named_as_it_stands_there(text, message, tmp_path):
    file = write(tmp_path, text)
    with pytest.raises(InputError, match=re.escape(f"{file}, {message}".replace("FILE", str(file)))):
        load_hparams(file, MelContract)


def test_options_may_have_underscores_and_nvidias_names(infer):
    args = infer(
        "--batch_size", 3, "--pitch-transform-flatten", "--waveglow-sigma-infer=0.6", "--results_path", "o"
    )
    assert (args.batch_size, args.pitch_flatten, args.sigma, args.output) == (3, True, 0.6, "o")
    for first in ("--fastpitch", "--checkpoint"):
        assert infer(first, "a.pt", "--hifigan", "b.pt").checkpoint == ["a.pt", "b.pt"]


def test_a_key_of_the_models_may_stand_as_an_option(infer):
    args = infer("--use_trt=True", "--use_fp16", "--trt_max_ws_size", "2", "--seed", "5")
    for model in ("fastpitch", "hifigan"):
        assert args.deployments[model] == Deployment(precision="fp16", trt_max_ws_size=2.0)
    assert args.backend == "trt" and args.seed == 5
    again = infer("--use-trt", "True", "--fp16", "--trt-file-path=x.trt")
    assert again.deployments["fastpitch"] == Deployment(precision="fp16", trt_file_path="x.trt")


@pytest.mark.parametrize(("words", "message"), read_tables(Path(__file__).parent / "cases.txt")["options"])
def test_what_is_wrong_is_named_as_it_is_written(words, message, infer):
    with pytest.raises(InputError, match=re.escape(message)):
        controls_from(infer(*words.split()))


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("Hello.", "-oa.wav"), {"words": "Hello.", "output": "a.wav"}),
        (("-o", "-", "--", "-5"), {"words": "-5", "output": "-"}),
        (("--pitch-shift", "-20", "Hello."), {"words": "Hello.", "pitch_shift": -20.0}),
        (("-5 degrees", "--out", "x"), {"words": "-5 degrees", "output": "x"}),
        (("--text=--x", "--strict=false"), {"text": "--x", "strict": False}),
        (("--retry", "--json", "Hello."), {"retry": "", "words": "Hello.", "json": True}),
        (("--retry", "3", "--retr=4"), {"retry": 4, "words": None}),
    ],
)
def test_words_that_are_options_values_and_texts(words, found):
    assert {key: getattr(speak_parser().parse_args(words), key) for key in found} == found


def test_a_text_without_quotes_is_quoted_in_the_message():
    with pytest.raises(InputError, match=r"^unexpected 'there': quote the text, \"Hello there\"$"):
        speak_parser().parse_args(["Hello", "--pace", "2", "there"])


def test_a_list_may_be_broken_by_options():
    parser = Parser()
    parser.add_argument("files", nargs="*")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--points", nargs="+", type=float)
    args = parser.parse_args(["a", "--json", "b", "--points", "1", "-2"])
    assert (args.files, args.json, args.points) == (["a", "b"], True, [1.0, -2.0])


def test_a_table_of_options_reads_as_its_help_says():
    table = option.__doc__.partition("(options.py):\n")[2]
    parser = Parser(kinds=("acoustic",))
    options.add_table(parser, table.replace("\n    ", "\n"))
    words = "a.txt f g -o d --listen --checkpoint x --checkpoint y --stages trt --no-warm-up --voice v"
    args = parser.parse_args(words.split())
    assert (args.phrases, args.files, args.output) == ("a.txt", ["f", "g"], Path("d"))
    assert (args.count, args.listen, args.checkpoint) == (4, "", ["x", "y"])
    assert (args.stages, args.warm_up, args.force, args.voice) == ("trt", False, False, "v")
    text = " ".join(parser.to_argparse().format_help().split())
    assert "heading:" in text and "is 4 (default: 4)" in text and "--warm-up, --no-warm-up" in text
    for wrong, message in (("a.txt", "--output is missing"), ("a -o d --stages x", "unknown --stages 'x'")):
        with pytest.raises(InputError, match=message):
            parser.parse_args(wrong.split())


def test_decoders_are_the_forms_that_the_models_have():
    for model in MODELS.values():
        forms = model.module("stages").PLAN.forms
        assert list(model.decoders) == (list(forms) if model.kind == "acoustic" and len(forms) > 1 else [])


def test_no_alias_is_a_key_or_an_option_of_its_own(capsys):
    from melforge.common.cli.model_settings import keys_of

    taken = set().union(*map(keys_of, MODELS))
    assert not taken & {*ALIASES, *SWITCHES}
    for main in (parse, build):
        with pytest.raises(SystemExit):
            main(["--help"])
    flags = {flag[2:].replace("-", "_") for flag in re.findall(r"--[a-z-]+", capsys.readouterr().out)}
    assert "checkpoint" in flags and not flags & {*ALIASES, *SWITCHES}


def test_the_table_of_aliases_is_documented():
    text = (Path(__file__).parents[2] / "docs" / "hparams.md").read_text()
    for alias, own in {**ALIASES, **{alias: own for alias, (own, *_) in SWITCHES.items()}}.items():
        assert re.search(rf"\| .*`{alias}`.* \| .*`{own}`.* \|", text), alias
