"""Maps the folders of the checkout to one installed package: `common/` is `melforge.common`, and so on.

pyproject.toml holds all that can stand there: its `packages.find` cannot give packages another prefix.
"""

import re
from pathlib import Path

from setuptools import find_namespace_packages, setup

ROOT = Path(__file__).resolve().parent
DATA = ("voices", "ears", "hparams")  # folders of files, without modules


def package_folders(root: Path) -> dict[str, str]:
    """Installed packages and their folders: those of `root` with an `__init__.py`, those of data, and all in
    them: of a folder of data inside that is no package setuptools would warn.
    """
    found = {"melforge": "melforge"}
    code = {path.parent.name for path in root.glob("*/__init__.py")} - {"melforge"}
    for folder in (*sorted(code), *DATA):
        inside = find_namespace_packages(str(root / folder), exclude=["*__pycache__"])
        inner = (f"{folder}.{name}" for name in inside)
        found |= {f"melforge.{name}": name.replace(".", "/") for name in (folder, *inner)}
    return found


def version(root: Path) -> str:
    code = (root / "melforge/__init__.py").read_text(encoding="utf-8")
    return re.findall(r'__version__ = "(.+)"', code)[0]


def description(root: Path) -> str:
    """README.md without links into the checkout, which lead nowhere on a page of PyPI's."""
    page = (root / "README.md").read_text(encoding="utf-8")
    return re.sub(r"!?\[([^\]]*)\]\((?!https?:)[^)]*\)", r"\1", page)


if __name__ == "__main__":
    folders = package_folders(ROOT)
    setup(
        version=version(ROOT),
        packages=list(folders),
        package_dir=folders,
        long_description=description(ROOT),
        long_description_content_type="text/markdown",
    )
