"""The table recipes/kernels.tsv is of today's kernels."""

from recipes.compile_kernels import HEADING, TABLE, kernel_sources, sources_hash


def test_the_table_is_made_again_when_a_kernel_changes():
    said = "python -m recipes.compile_kernels makes recipes/kernels.tsv"
    assert HEADING.format(sources_hash()) in TABLE.read_text(encoding="utf-8"), said


def test_comments_do_not_count(tmp_path, monkeypatch):
    wanted = sources_hash()
    copies = []
    for path in kernel_sources():
        text = path.read_text(encoding="utf-8")
        copies.append(tmp_path / f"{len(copies):02}{path.suffix}")
        copies[-1].write_text(
            text + ("\n# more\n" if path.suffix == ".py" else "// more\n"), encoding="utf-8"
        )
    monkeypatch.setattr("recipes.compile_kernels.kernel_sources", lambda: copies)
    assert sources_hash() == wanted
    copies[0].write_text(copies[0].read_text(encoding="utf-8") + "\nmore = 1\n", encoding="utf-8")
    assert sources_hash() != wanted
