"""Hyper-parameter files: inheritance, types, and errors that say where."""

import tracemalloc
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from melforge.common.audio.contract import MelContract
from melforge.common.config.deployment import Deployment
from melforge.common.config.hparams import load_hparams, read_file
from melforge.common.registry import get_model
from melforge.hifigan.config import HifiganConfig
from tests.tables import read_tables

SHIPPED = sorted((Path(__file__).parents[2] / "hparams").glob("*/*.yaml"))


@dataclass(frozen=True)
class Recipe:
    name: str
    batch_size: int = 4
    rate: float = 0.1
    compile: bool = False
    limit: float | None = None
    sizes: tuple[int, ...] = (1,)
    pairs: tuple[tuple[int, float], ...] = ()
    words: dict[str, int] | None = None
    mode: Literal["fast", "slow"] = "fast"
    folder: Path = Path("here")


@dataclass(frozen=True)
class Other:
    batch_size: int = 1


def write(folder: Path, **files: str) -> Path:
    """Files by their stem; the last one's path."""
    for stem, text in files.items():
        path = folder / f"{stem}.yaml"
        path.write_text(text)
    return path


def load(folder: Path, text: str, *classes, **options):
    return load_hparams(write(folder, child=text), *(classes or (Recipe,)), **options)


def test_values_are_typed_and_feed_every_class_that_has_the_field(tmp_path):
    text = (
        "name: a\nbatch_size: 8\nrate: 1\nlimit: 2\nsizes: [3, 4]\npairs: [[1, 2]]\nwords: {x: 1}\n"
        "mode: slow\nfolder: there\ncompile: true\n"
    )
    recipe, other = load(tmp_path, text, Recipe, Other)
    assert recipe == Recipe("a", 8, 1.0, True, 2.0, (3, 4), ((1, 2.0),), {"x": 1}, "slow", Path("there"))
    assert isinstance(recipe.rate, float) and isinstance(recipe.limit, float) and other.batch_size == 8


def test_exponents_without_a_point_are_numbers(tmp_path):
    assert load(tmp_path, "name: a\nrate: 2e-4")[0].rate == 2e-4


def test_children_win_over_any_number_of_parents_and_mappings_merge(tmp_path):
    (tmp_path / "deep").mkdir()
    write(tmp_path, root="name: root\nrate: 1.0\nwords: {x: 1, y: 2}\nsizes: [1, 2, 3]")
    write(tmp_path / "deep", middle="parent_yaml: ../root.yaml\nrate: 2.0\nbatch_size: 7")
    (recipe,) = load(tmp_path, "parent_yaml: deep/middle.yaml\nbatch_size: 9\nwords: {y: 3}\nsizes: [4]")
    assert recipe == Recipe("root", 9, 2.0, words={"x": 1, "y": 3}, sizes=(4,))


def test_overrides_come_last_and_text_stays_text(tmp_path):
    path = write(tmp_path, child="name: a\nlimit: 3.0")
    (recipe,) = load_hparams(
        path, Recipe, overrides=["name=17", "rate=1e-3", "limit=null", "sizes=[5,6]", "compile=true"]
    )
    assert recipe == Recipe("17", rate=1e-3, limit=None, sizes=(5, 6), compile=True)
    assert load_hparams(path, Recipe, overrides={"name": "1.0", "batch_size": 5})[0] == Recipe(
        "1.0", 5, limit=3.0
    )


def test_shipped_files_load_and_differ_as_they_say():
    folder = Path(__file__).parents[2] / "hparams" / "hifigan"
    base, contract = load_hparams(folder / "base.yaml", HifiganConfig, MelContract)
    assert (base, contract) == (HifiganConfig(), MelContract())
    v1, _ = load_hparams(folder / "v1.yaml", HifiganConfig, MelContract)
    assert v1.resblock_kernel_sizes == (3, 7, 11)
    compact, _ = load_hparams(folder / "compact.yaml", HifiganConfig, MelContract, overrides=["resblock=1"])
    assert compact.upsample_rates == (4, 4, 4, 4) and compact.resblock == "1"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *read_tables(Path(__file__).parent / "cases.txt")["hyper-parameters"],
        ("name: \x00", "not readable as YAML"),
        ("name: " + "[" * 5000, "not readable as YAML|nesting depth"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        load(tmp_path, text)


def test_a_file_in_another_encoding_is_named_with_its_line(tmp_path):
    (tmp_path / "latin.yaml").write_bytes("batch_size: 1\nname: né\n".encode("latin-1"))
    with pytest.raises(ValueError, match=r"latin\.yaml line 2 is not UTF-8 \(byte 0xe9\): save it"):
        load_hparams(tmp_path / "latin.yaml", Recipe)


def test_inheritance_goes_as_deep_as_it_likes(tmp_path):
    write(tmp_path, level0="name: deep\nbatch_size: 1")
    for level in range(1, 500):
        write(tmp_path, **{f"level{level}": f"parent_yaml: level{level - 1}.yaml\nbatch_size: {level}"})
    (recipe,) = load_hparams(tmp_path / "level499.yaml", Recipe)
    assert (recipe.name, recipe.batch_size) == ("deep", 499)


def test_none_is_null_where_null_is_allowed(tmp_path):
    (recipe,) = load(tmp_path, "name: None\nlimit: None\nwords: None")
    assert recipe == Recipe("None", limit=None, words=None)


def test_a_file_says_whose_it_is(tmp_path):
    write(tmp_path, base="model: hifigan\nresblock: '2'")
    (config,) = load(tmp_path, "parent_yaml: base.yaml", HifiganConfig, model="hifigan")
    assert config.resblock == "2"
    with pytest.raises(
        ValueError, match=r"child\.yaml is a file of hifigan \(.*base\.yaml, line 1\), not of way"
    ):
        load(tmp_path, "parent_yaml: base.yaml", HifiganConfig, model="way")
    with pytest.raises(
        ValueError, match=r"line 2: model is 'waveglow', but 'hifigan' in .*base\.yaml, line 1"
    ):
        load(tmp_path, "parent_yaml: base.yaml\nmodel: waveglow", HifiganConfig)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_shipped_file_fills_its_classes(path):
    model = get_model(path.parent.name)
    classes = [model.config_class, MelContract]
    if path.stem.startswith(("train", "finetune")):
        parts = vars(model.module("train")).items()
        load_hparams(path, *classes, *(c for name, c in parts if name.endswith("Recipe")), model=model.name)
    else:
        deployment, *_ = load_hparams(path, Deployment, *classes, model=model.name)
        buckets = deployment.buckets(model.kind)
        assert len(buckets) == (4 if "multi_engine" in path.stem else "trt" in path.stem)
        assert (deployment.backend == "trt") == ("trt" in path.stem)
        assert deployment.precision == ("fp16" if "fp16" in path.stem else "fp32")
        files = deployment.trt_file_path_list or (deployment.trt_file_path,) * len(buckets)
        for bucket, file in zip(buckets, files, strict=True):
            lengths = f"i{bucket.text}.o{bucket.mel}" if bucket.text else f"o{bucket.mel}"
            assert file == f"engines/{model.name}.{lengths}{'.fp16' * (deployment.precision == 'fp16')}.trt"


def test_errors_in_a_parent_name_the_parent(tmp_path):
    write(tmp_path, root="name: a\nrat: 1.0")
    with pytest.raises(ValueError, match=r"root\.yaml, line 2: unknown key 'rat'; did you mean 'rate'\?"):
        load(tmp_path, "parent_yaml: root.yaml")


def test_circles_of_parents_are_found(tmp_path):
    write(tmp_path, root="parent_yaml: child.yaml")
    with pytest.raises(ValueError, match=r"circle \(child\.yaml -> root\.yaml -> child\.yaml\)"):
        load(tmp_path, "parent_yaml: root.yaml")


def test_files_that_are_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"child\.yaml, line 1: parent_yaml .*none\.yaml not found"):
        load(tmp_path, "parent_yaml: none.yaml")
    with pytest.raises(FileNotFoundError, match=r"none\.yaml not found"):
        load_hparams(tmp_path / "none.yaml", Recipe)
    with pytest.raises(IsADirectoryError, match="give a YAML file"):
        load_hparams(tmp_path, Recipe)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("batch_size", "--set batch_size: write key=value"),
        ("batchsize=3", "--set batchsize=3: unknown key 'batchsize'; did you mean 'batch_size'"),
        ("batch_size=many", "--set batch_size=many: batch_size must be a whole number, not 'many'"),
        ("sizes=[1", r"--set sizes=\[1: "),
        ("sizes=*x", r"--set sizes=\*x: aliases"),
    ],
)
def test_wrong_overrides_are_refused(override, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        load(tmp_path, "name: a", overrides=[override])


def test_alias_explosions_and_huge_files_are_refused_unread(tmp_path):
    bomb = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40))
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"line 2: aliases \(\*name\) are not allowed"):
        load(tmp_path, bomb)
    with pytest.raises(ValueError, match="larger than"):
        load(tmp_path, "#" * (2 << 20))
    with pytest.raises(ValueError, match="larger than"):
        load_hparams("/dev/zero", Recipe)
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most_bytes < 8 << 20


def test_a_class_that_refuses_the_values_names_the_file(tmp_path):
    with pytest.raises(ValueError, match=r'child\.yaml, line 1: resblock must be "1" or "2"'):
        load(tmp_path, 'resblock: "3"', HifiganConfig)


def test_an_empty_file_gives_the_defaults(tmp_path):
    assert load(tmp_path, "# nothing\n", Other) == (Other(),)


def test_shipped_files_are_found_by_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    whole = read_file("hparams/fastpitch/trt.yaml")
    assert read_file("fastpitch/trt.yaml") == whole == read_file("trt.yaml", "fastpitch")
    assert read_file("trt.yaml", "hifigan") != whole
    with pytest.raises(FileNotFoundError, match=r"trt.yaml not found: there is hparams/fastpitch/trt.yaml, "):
        read_file("trt.yaml")
    for path, near in (("fastpitch/trt_fp61.yaml", "fastpitch/trt_fp16"), ("v5.yml", None), ("c2c4i", None)):
        with pytest.raises(FileNotFoundError) as caught:
            read_file(path)
        end = f"not found: there is hparams/{near}.yaml" if near else "not found"
        assert str(caught.value) == f"hyper-parameter file {path} {end}"
    (tmp_path / "trt.yaml").write_text("pace: 0.5\n")  # what is here comes first
    assert read_file("trt.yaml", "fastpitch")["pace"].value == 0.5
