"""Makes build/package/melforge, links to the folders of the package, for tools that read no setup.py."""

import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    package = ROOT / "build" / "package" / "melforge"
    package.mkdir(parents=True, exist_ok=True)
    for name, folder in runpy.run_path(str(ROOT / "setup.py"))["package_folders"](ROOT).items():
        if name.count(".") == 1:
            link(package / name.partition(".")[2], ROOT / folder)
    for file in (ROOT / "melforge").glob("*.py"):
        link(package / file.name, file)


def link(place: Path, target: Path) -> None:
    if not place.is_symlink():
        place.symlink_to(target)


if __name__ == "__main__":
    main()
