"""The house's rules: no import upwards, no circle, models alike, one place for what only one place may do.

Every import counts: inside functions, for type checking, by `importlib` and as a "module:attribute" string.
"""

import ast
import functools
import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest

from melforge.common.registry import names

ROOT = Path(__file__).resolve().parents[1]
MODELS = tuple(names())
INSTALLED = runpy.run_path(str(ROOT / "setup.py"))["package_folders"](ROOT)
# From the ground up, each without its "melforge.": a row may import its own rooms and the rows above it.
# docs/architecture.md has a sentence on each.
LADDER = (
    ("common.errors", "common.arguments"),
    (
        "common.files",
        "common.arrays",
        "common.cuda_streams",
        "common.garbage",
        "common.noise",
        "common.processes",
        "common.progress",
        "common.remote",
    ),
    ("common.text",),
    ("common.config",),
    ("common.registry",),
    ("common.stages",),
    ("common.audio", "common.speech"),
    ("common.weights",),
    ("common.engines",),
    ("common.export",),
    ("common.synthesis",),
    ("common.recognition",),
    ("common.runner",),
    ("common.bulk",),
    ("common.serve",),
    ("common.triton",),
    ("common.cluster",),
    ("common.bench",),
    ("common.verify",),
    ("common.training",),
    ("common.cli",),
    MODELS,
    ("trt_plugins",),
    ("melforge", "scripts", "examples"),
    ("recipes",),
)
GROUND = (*LADDER[0], *LADDER[1])
FLOORS = {room: floor for floor, row in enumerate(LADDER) for room in row}
PACKAGES = tuple(sorted({room.partition(".")[0] for room in FLOORS}))
DOTTED = re.compile(r"(?:melforge|recipes)(?:\.\w+)+(?::\w+)?")
# Tables that are there to name what is above: models by their parts, and a model's kernels.
REGISTRY = "common.registry"
ROOMS = (
    "model",
    "config",
    "checkpoint",
    "stages",
    "examples",
    "infer",
    "export_onnx",
    "build_trt",
    "verify_trt",
    "train",
)


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def ours(name: str) -> str:
    """A module of ours as SOURCES names it: `melforge.common.errors` stands in common/errors.py."""
    return inner if (inner := name.removeprefix("melforge.")) in SOURCES else name


SOURCES = {module_of(path): path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))}


def room_of(module: str) -> str:
    found = [room for room in FLOORS if module == room or module.startswith(f"{room}.")]
    assert len(found) == 1, f"{module} is in no room of the ladder: add it there"
    return found[0]


def imports_of(tree: ast.AST, module: str = "") -> Iterator[tuple[int, str]]:
    """Line and module of everything of ours that is imported, by whatever means."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, ours(alias.name)) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                inner = ours(f"{node.module}.{alias.name}")
                yield node.lineno, inner if inner in SOURCES else ours(node.module)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and DOTTED.fullmatch(node.value):
            name = node.value.partition(":")[0]
            while name and ours(name) not in SOURCES:
                name = name.rpartition(".")[0]
            if name not in ("", "melforge"):
                yield node.lineno, ours(name)


@functools.cache
def arrows() -> list[tuple[str, int, str]]:
    return sorted(
        {
            (module, line, other)
            for module, path in SOURCES.items()
            for line, other in imports_of(ast.parse(path.read_text(encoding="utf-8")))
            if other.partition(".")[0] in PACKAGES and other != module and other in SOURCES
        }
    )


def may_name(module: str, other: str) -> bool:
    """The tables that name what is above them."""
    if module == REGISTRY:
        return other.partition(".")[0] in MODELS
    package, _, room = module.partition(".")
    return package in MODELS and room == "stages" and other.startswith("trt_plugins.")


def test_every_module_is_in_a_room():
    assert all(room_of(module) for module in SOURCES if module != "common")


def test_every_installed_package_is_a_room_and_every_model_is_installed():
    """A folder of code that the ladder lacks, and a registered model without a folder, are found."""
    code = {name for name, folder in INSTALLED.items() if any((ROOT / folder).glob("*.py"))}
    assert all(room_of(module) for name in code if (module := ours(name)) not in ("melforge", "common"))
    assert {f"melforge.{model}" for model in MODELS} <= code


def test_our_modules_are_imported_by_their_installed_names():
    """`import common` finds a user's own `common`, or in a checkout a second copy of ours."""
    ours = set(PACKAGES) - {"melforge", "scripts", "examples", "recipes"}
    bare = re.compile(rf"(?m)^\s*(?:from|import) ({'|'.join(ours)})\b")
    files = [path for folder in (*PACKAGES, "tests") for path in (ROOT / folder).rglob("*.py")]
    wrong = {str(path.relative_to(ROOT)) for path in files if bare.search(path.read_text(encoding="utf-8"))}
    assert not wrong, wrong


def test_nothing_imports_upwards():
    wrong = [
        f"{SOURCES[module].relative_to(ROOT)}:{line} imports {other}"
        for module, line, other in arrows()
        if FLOORS[room_of(other)] > FLOORS[room_of(module)] and not may_name(module, other)
    ]
    assert not wrong, "\n".join(wrong)


def test_models_do_not_import_each_other_and_name_kernels_only_in_their_stages():
    wrong = [
        f"{SOURCES[module].relative_to(ROOT)}:{line} imports {other}"
        for module, line, other in arrows()
        if module.partition(".")[0] in MODELS
        and other.partition(".")[0] in (*MODELS, "trt_plugins")
        and module.partition(".")[0] != other.partition(".")[0]
        and not may_name(module, other)
    ]
    assert not wrong, "\n".join(wrong)


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Strongly connected groups of more than one module (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in graph[module]:
            if other not in index:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], index[other])
        if low[module] == index[module]:
            group = [stack.pop()]
            while group[-1] != module:
                group.append(stack.pop())
            if len(group) > 1:
                found.append(sorted(group))

    for module in graph:
        if module not in index:
            visit(module)
    return found


def test_no_circle_of_imports():
    graph: dict[str, set[str]] = {module: set() for module in SOURCES}
    for module, _, other in arrows():
        if not may_name(module, other):
            graph[module].add(other)
    assert not (found := circles(graph)), "\n".join(" <-> ".join(group) for group in found)


@pytest.mark.parametrize("model", MODELS)
def test_models_have_the_same_rooms(model):
    missing = [room for room in ROOMS if f"{model}.{room}" not in SOURCES]
    assert not missing, f"{model} lacks {', '.join(missing)}"


@pytest.mark.parametrize("model", MODELS)
def test_a_network_knows_only_its_package_and_the_ground(model):
    others = {other for module, _, other in arrows() if module == f"{model}.model"}
    assert all(other.partition(".")[0] == model or other in GROUND for other in others), others


def test_every_path_in_the_architecture_page_exists():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    paths = [text for text in re.findall(r"`([\w<>/]+(?:\.\w+|/))`", page) if "/" in text]
    assert paths
    for text in paths:
        text = text.replace("<name>", "hazel")
        for path in [text.replace("<model>", model) for model in MODELS] if "<model>" in text else [text]:
            assert (ROOT / path).exists(), text


@pytest.mark.parametrize(
    "pattern, home",
    [
        (r"(?m)^\s*from\s+\.", None),  # relative imports, which the tests above do not follow
        (r"CUDAGraph\(", "common/engines/cuda_graphs.py"),
        (r"argparse\._|\._actions\b|\._group_actions\b|\._mutually_exclusive_groups\b", None),
        (
            r"(?:get|has)attr\(\s*(?:self\.)?_?(?:engine|encoder|decoder|generator|acoustic|vocoder|driver)s?\b",
            None,
        ),
    ],
)
def test_what_stands_in_one_place_or_in_none(pattern, home):
    files = [path for package in (*PACKAGES, "tests") for path in (ROOT / package).rglob("*.py")]
    found = {
        str(path.relative_to(ROOT)) for path in files if re.search(pattern, path.read_text(encoding="utf-8"))
    }
    found.discard("tests/test_layers.py")
    assert found == ({home} if home else set())


def test_a_class_name_of_the_library_means_one_thing():
    places: dict[str, list[str]] = {}
    for module, path in SOURCES.items():
        if module.startswith(("recipes.", "examples.")):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(module)
    assert not {name: found for name, found in places.items() if len(found) > 1}
