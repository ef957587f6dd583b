"""Data sets as the world has them: each recording gets its text and speaker, or a sentence says why not."""

import json
import re
import warnings
from pathlib import Path

import pytest
import yaml

from melforge.common.errors import InputError
from melforge.common.training.corpus.takes import find_takes

TEXTS = {"A": "Printing was the first of arts.", "B": "It is used in 1887, and now."}
KNOWN = {"right": {"a": ("A", ""), "b": ("B", "")}, "of two": {"a": ("A", "ann"), "b": ("B", "bob")}}
LAYOUTS = yaml.safe_load((Path(__file__).parent / "layouts.yaml").read_text("utf-8"))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_data_set_is_read_or_refused_in_a_sentence(layout, tmp_path):
    sounds, others, wanted, *how = LAYOUTS[layout]
    wanted = KNOWN.get(wanted, wanted) if isinstance(wanted, str) else wanted
    folder = tmp_path / "set"
    folder.mkdir()
    for name in sounds.split():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()  # what it sounds like is not asked
    for name, content in others.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, list):
            content = "".join(f"{json.dumps(entry)}\n" for entry in content)
        for word, text in (*TEXTS.items(), ("FOLDER", str(folder))):
            content = re.sub(rf"\b{word}\b", text.replace("\\", "/"), content)
        (folder / name).write_bytes(content.encode(errors="surrogateescape"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if isinstance(wanted, str):
            with pytest.raises(InputError, match=wanted):
                find_takes(folder, *how)
            return
        takes = find_takes(folder, *how)
    found = {take.sound and take.sound.stem: (take.text, take.speaker) for take in takes}
    assert found == {name: (TEXTS.get(text, text), speaker) for name, (text, speaker) in wanted.items()}
    assert len(takes) == len(wanted)


def test_kaldis_segments_are_pieces(tmp_path):
    (tmp_path / "a.wav").touch()
    for name, lines in {
        "text": "u1 A\nu2 B\n",
        "wav.scp": "r a.wav",
        "segments": "u1 r 0 2\nu2 r 2 4.5",
    }.items():
        (tmp_path / name).write_text(lines)
    found = [(take.name, take.text, take.piece) for take in find_takes(tmp_path)]
    assert found == [("a", "A", (0.0, 2.0)), ("a-2", "B", (2.0, 4.5))]


def test_a_column_that_is_not_taken_for_texts_is_told(tmp_path):
    (tmp_path / "a.wav").touch()
    (tmp_path / "metadata.csv").write_text("a|It is used in 1887.|0")
    with pytest.warns(
        UserWarning, match=r"column 2 is taken for the texts, not the last one \(0\): a heading line"
    ):
        find_takes(tmp_path)


def test_of_two_rates_the_higher_is_taken_and_parts_stay_apart(tmp_path):
    for folder, size in (("wav16", 1), ("wav48", 3), ("wavs_1", 1), ("wavs_2", 1)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.wav").write_bytes(bytes(size))
    (tmp_path / "a.txt").write_text(TEXTS["A"])
    sources = [take.source for take in find_takes(tmp_path) if take.text]
    assert sources == ["wav48/a.wav", "wavs_1/a.wav", "wavs_2/a.wav"]
