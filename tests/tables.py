"""Cases of tests in a text file: parts behind blank lines, each headed `# NAME: what its rows are`."""

from pathlib import Path


def read_tables(path: Path) -> dict[str, list[tuple[str, ...]]]:
    """Its rows by name. In them `=>` is between cells, and `\\n` the end of a line."""
    found = {}
    for part in path.read_text("utf-8").strip().split("\n\n"):
        heading, *lines = part.split("\n")
        name = heading.removeprefix("# ").partition(":")[0]
        found[name] = [
            tuple(cell.strip().replace("\\n", "\n") for cell in line.split("=>")) for line in lines
        ]
    return found
