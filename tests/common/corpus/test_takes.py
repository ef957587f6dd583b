"""Folders of recordings as people keep them: each sound file gets its text and its speaker, or is told."""

import numpy as np
import pytest
import soundfile

from melforge.common.training.corpus.takes import find_takes

TONE = 0.1 * np.sin(np.arange(800) * 0.3)


def make(folder, *names, **texts):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(folder / name, TONE, 16_000)
    for name, text in texts.items():
        (folder / name.replace("__", "/").replace("_csv", ".csv").replace("_txt", ".txt")).write_text(
            text, encoding="utf-8"
        )


def found(folder, speaker_from=None):
    takes = find_takes(folder, speaker_from)
    return [(t.name, t.sound and t.sound.name, t.text, t.speaker) for t in takes]


def test_ljspeechs_folder(tmp_path):
    make(tmp_path, "wavs/LJ1.wav", "wavs/LJ2.flac", metadata_csv="LJ1|1 man|one man\nLJ2|Two.|Two.\n\n")
    assert found(tmp_path) == [("LJ1", "LJ1.wav", "one man", ""), ("LJ2", "LJ2.flac", "Two.", "")]


def test_texts_beside_sound_files_and_speakers_by_subfolder(tmp_path):
    make(tmp_path, "Ann/a.wav", "Bob/a.wav", Ann__a_txt="\ufeffHello. \n", Bob__a_txt="Bye.")
    assert found(tmp_path) == [("Ann-a", "a.wav", "Hello.", "Ann"), ("Bob-a", "a.wav", "Bye.", "Bob")]
    assert [one[3] for one in found(tmp_path, "none")] == ["", ""]
    (tmp_path / "Bob" / "a.wav").unlink()
    assert [one[3] for one in found(tmp_path)] == ["", ""]  # one folder is no speaker's name
    with pytest.raises(ValueError, match="no subfolders of several speakers: use --speaker-from none"):
        find_takes(tmp_path, "folder")


def test_ljspeech_folders_of_several_speakers(tmp_path):
    make(
        tmp_path, "Ann/wavs/1.wav", "Bob/wavs/1.wav", Ann__metadata_csv="1|Hello.", Bob__metadata_csv="1|Bye."
    )
    assert found(tmp_path) == [("Ann-1", "1.wav", "Hello.", "Ann"), ("Bob-1", "1.wav", "Bye.", "Bob")]


@pytest.mark.parametrize(
    ("table", "speaker_from"),
    [
        ("1|Hello.|Ann\n2|Bye.|Bob\n", "column"),
        ("1|Hi|Hello.|Ann\n2|By|Bye.|Bob\n", "column"),
        ("speaker|audio_file|text\nAnn|wavs/1.wav|Hello.\nBob|wavs/2.wav|Bye.\n", None),
        ("file_name,speaker_id,transcription\n1.wav,Ann,Hello.\n2.wav,Bob,Bye.\n", "column"),
        ("file\tsentence\tspeaker\n1\tHello.\tAnn\n2\tBye.\tBob\n", None),
    ],
)
def test_speakers_in_a_column(tmp_path, table, speaker_from):
    make(tmp_path, "wavs/1.wav", "wavs/2.wav", metadata_csv=table)
    assert found(tmp_path, speaker_from) == [("1", "1.wav", "Hello.", "Ann"), ("2", "2.wav", "Bye.", "Bob")]
    assert [one[3] for one in found(tmp_path, "none")] == ["", ""]


def test_a_csv_quotes_its_commas_and_a_heading_chooses_the_normalised_text(tmp_path):
    make(tmp_path, "1.wav", metadata_csv='file,text,normalized_text\n1.wav,"2, 3","two, three"\n')
    assert found(tmp_path) == [("1", "1.wav", "two, three", "")]


def test_what_lacks_a_text_or_a_sound_file_is_found_too(tmp_path):
    make(tmp_path, "wavs/1.wav", "wavs/3.wav", metadata_csv="1|One.\n2|Two.\n")
    assert found(tmp_path) == [("1", "1.wav", "One.", ""), ("2", None, "Two.", ""), ("3", "3.wav", None, "")]
    other = tmp_path / "other"
    make(other, "a.wav", "b.wav", a_txt="A.", c_txt="C.")
    assert found(other) == [("a", "a.wav", "A.", ""), ("b", "b.wav", None, ""), ("c", None, "", "")]


def test_a_name_that_two_files_have_is_none_of_them(tmp_path):
    make(tmp_path, "a/1.wav", "b/1.wav", "b/2.wav", metadata_csv="1|One.\nb/1|Two.\n2.wav|Three.\n")
    assert [(take.source, take.text) for take in find_takes(tmp_path) if take.text] == [
        ("1", "One."),
        ("b/1.wav", "Two."),
        ("b/2.wav", "Three."),
    ]


def test_sound_files_beside_subfolders_are_no_speaker_unless_asked(tmp_path):
    make(tmp_path, "1.wav", "Ann/2.wav", **{"1_txt": "One.", "Ann__2_txt": "Two.\nAnd  more."})
    assert found(tmp_path) == [("1", "1.wav", "One.", ""), ("Ann-2", "2.wav", "Two. And more.", "")]
    assert [one[3] for one in found(tmp_path, "folder")] == ["others", "Ann"]


def test_names_are_unique_and_hidden_files_are_not_seen(tmp_path):
    make(tmp_path, "a/b.wav", "a-B.wav", ".trash/b.wav", "._a.wav", **{"a-B_txt": "A."})
    assert sorted(one[:2] for one in found(tmp_path)) == [("a-B", "a-B.wav"), ("a-b-2", "b.wav")]


@pytest.mark.parametrize(
    ("table", "speaker_from", "message"),
    [
        ("1 One.\n", None, r"metadata\.csv, line 1: write name\|text$"),
        ("\n1|One.\n2\n", None, r"metadata\.csv, line 3: write name\|text$"),
        ("1|One.\n", "column", r"metadata\.csv, line 1: write name\|text\|speaker$"),
        ("1|One.|\n", "column", r"metadata\.csv, line 1: its speaker is empty$"),
        ("file|text\n1|One.\n", "column", r"metadata\.csv, line 1 names no column 'speaker'$"),
        ("", None, r"metadata\.csv is empty: write a line name\|text for each recording$"),
    ],
)
def test_a_wrong_table_names_its_line(tmp_path, table, speaker_from, message):
    make(tmp_path, "wavs/1.wav", metadata_csv=table)
    with pytest.raises(ValueError, match=message):
        find_takes(tmp_path, speaker_from)


def test_folders_without_anything_to_prepare(tmp_path):
    with pytest.raises(FileNotFoundError, match="give a folder of recordings"):
        find_takes(tmp_path / "none")
    with pytest.raises(ValueError, match="holds no sound files"):
        find_takes(tmp_path)
    make(tmp_path, "a.wav")
    with pytest.raises(ValueError, match=r"has no texts: write metadata\.csv"):
        find_takes(tmp_path)
    (tmp_path / "a.txt").write_bytes(b"caf\xe9")
    with pytest.raises(ValueError, match=r"a\.txt line 1 is not UTF-8"):
        find_takes(tmp_path)
    (tmp_path / "a.txt").write_text("A.")
    with pytest.raises(ValueError, match=r"no column of speakers: use --speaker-from folder"):
        find_takes(tmp_path, "column")


def test_no_two_recordings_have_one_name(tmp_path):
    make(tmp_path, "a/b.wav", "a-b.flac", "a-b-2.wav")
    (tmp_path / "a-b.txt").write_text("One.")
    names = [take.name for take in find_takes(tmp_path)]
    assert len(names) == len(set(names)) == 3 and {"a-b", "a-b-2"} < set(names)


@pytest.mark.parametrize(
    ("cues", "text", "speaker", "turns"),
    [
        (("ANN: One.", "Bob: Two.", "Still\ntwo.", "ANN: Three.", "Bob: I say: four."), None, "", 4),
        (("<v Ann>One.</v>", "<v.loud Bob>Two.</v>", "<i>Three.</i>"), "One. Two. Three.", "", 2),
        (("[Ann]: One.", "[Ann]: Two."), "One. Two.", "Ann", 0),
        (("Remember: one.", "Two."), "Remember: one. Two.", "", 0),
        (("One.", "ANN: Two.", "ANN: Three."), "One. Two. Three.", "", 2),
    ],
)
def test_subtitles_name_who_speaks_and_names_are_not_read(tmp_path, cues, text, speaker, turns):
    make(tmp_path, "a.wav")
    (tmp_path / "a.vtt").write_text("WEBVTT\n\n" + "\n\n".join(f"0:01 --> 0:02\n{cue}" for cue in cues))
    (take,) = find_takes(tmp_path)
    assert take.text == (text or "One. Two. Still two. Three. I say: four.")
    assert take.speaker == speaker and len(take.turns) == turns
    assert not turns or take.text == " ".join(said for _, said in take.turns)
    assert find_takes(tmp_path, "none")[0].turns == ()


@pytest.mark.parametrize(
    ("lines", "text", "turns"),
    [
        (("ANN: One.", "BOB: Two.", "", "ANN: Three.", "BOB: Four."), "One. Two. Three. Four.", 4),
        (("Note: one.", "Two.", "Note: three."), "Note: one. Two. Note: three.", 0),
        (
            ("A: one.", *"bcd", "B: two.", *"efg", "A: 3.", "B: 4."),
            "A: one. b c d B: two. e f g A: 3. B: 4.",
            0,
        ),
    ],
)
def test_a_transcript_of_several_speakers_names_them_in_most_lines(tmp_path, lines, text, turns):
    make(tmp_path, "a.wav", a_txt="\n".join(lines))
    (take,) = find_takes(tmp_path)
    assert take.text == text and len(take.turns) == turns
