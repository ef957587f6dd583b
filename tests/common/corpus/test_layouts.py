"""Data sets as the world has them: each recording gets its text and speaker, or a sentence says why not.

A row is a layout: its sound files, its other files (A and B in them are the two texts), and what comes of it.
"""

import json
import re
import unicodedata
import warnings

import pytest

from melforge.common.errors import InputError
from melforge.common.training.corpus.takes import find_takes

TEXTS = {"A": "Printing was the first of arts.", "B": "It is used in 1887, and now."}
RIGHT = {"a": ("A", ""), "b": ("B", "")}
OF_TWO = {"a": ("A", "ann"), "b": ("B", "bob")}
IN_WAVS, BESIDE = "wavs/a.wav wavs/b.wav", "a.wav b.wav"
É = unicodedata.normalize("NFC", "é")


def manifest(*entries: dict) -> str:
    return "".join(f"{json.dumps(entry)}\n" for entry in entries)


# name -> (sound files, other files, what comes of it: recordings, or an error's words[, --speaker-from])
LAYOUTS = {
    # Tables without a heading
    "ljspeech": (IN_WAVS, {"metadata.csv": "a|raw A|A\nb|raw B|B"}, RIGHT),
    "two columns": (IN_WAVS, {"metadata.csv": "a|A\nb|B"}, RIGHT),
    "with suffix": (IN_WAVS, {"metadata.csv": "a.wav|A\nb.wav|B"}, RIGHT),
    "with folder": (IN_WAVS, {"metadata.csv": "wavs/a.wav|A\nwavs/b.wav|B"}, RIGHT),
    "from here": (IN_WAVS, {"metadata.csv": "./wavs/a.wav|A\n./wavs/b.wav|B"}, RIGHT),
    "two slashes": (IN_WAVS, {"metadata.csv": "wavs//a.wav|A\nwavs//b.wav|B"}, RIGHT),
    "absolute": (IN_WAVS, {"metadata.csv": "FOLDER/wavs/a.wav|A\nFOLDER/wavs/b.wav|B"}, RIGHT),
    "absolute elsewhere": (IN_WAVS, {"metadata.csv": "/data/LJ/wavs/a.wav|A\n/data/LJ/wavs/b.wav|B"}, RIGHT),
    "up and down": (IN_WAVS, {"metadata.csv": "../set/wavs/a.wav|A\n../set/wavs/b.wav|B"}, RIGHT),
    "from above": (IN_WAVS, {"metadata.csv": "set/wavs/a.wav|A\nset/wavs/b.wav|B"}, RIGHT),
    "placeholder folder": (IN_WAVS, {"list.txt": "DUMMY1/a.wav|A\nDUMMY1/b.wav|B"}, RIGHT),
    "backslashes": (IN_WAVS, {"metadata.csv": "wavs\\a.wav|A\nwavs\\b.wav|B"}, RIGHT),
    "a drive": (IN_WAVS, {"metadata.csv": "C:\\sets\\wavs\\a.wav|A\nC:\\sets\\wavs\\b.wav|B"}, RIGHT),
    "case of suffix": ("wavs/a.WAV wavs/b.WAV", {"metadata.csv": "a.wav|A\nb.wav|B"}, RIGHT),
    "case of folder": ("Wavs/a.wav Wavs/b.wav", {"metadata.csv": "WAVS/a.wav|A\nwavs/b.wav|B"}, RIGHT),
    "unicode form": (
        f"wavs/{unicodedata.normalize('NFD', É)}.wav wavs/b.wav",
        {"metadata.csv": f"{É}|A\nb|B"},
        {unicodedata.normalize("NFD", É): ("A", ""), "b": ("B", "")},
    ),
    "other format": ("wavs/a.flac wavs/b.flac", {"metadata.csv": "wavs/a.wav|A\nwavs/b.wav|B"}, RIGHT),
    "twins": (f"{IN_WAVS} wavs/a.mp3 wavs/b.mp3", {"metadata.csv": "a|A\nb|B"}, RIGHT),
    "twins apart": (f"{IN_WAVS} mp3/a.mp3 mp3/b.mp3", {"metadata.csv": "a|A\nb|B"}, RIGHT),
    "tabs": (IN_WAVS, {"metadata.csv": "a.wav\tA\nb.wav\tB"}, RIGHT),
    "commas, quoted": (IN_WAVS, {"metadata.csv": 'a.wav,"A"\nb.wav,"B"'}, RIGHT),
    "commas, unquoted": (IN_WAVS, {"metadata.csv": "a.wav,A\nb.wav,B"}, RIGHT),
    "semicolons": (IN_WAVS, {"metadata.csv": "a.wav;A\nb.wav;B"}, RIGHT),
    "quotes and bars": (IN_WAVS, {"metadata.csv": '"a.wav"|"A"\n"b.wav"|"B"'}, RIGHT),
    "windows": (IN_WAVS, {"metadata.csv": "\ufeffa|A\r\nb|B\r\n"}, RIGHT),
    "blanks": (IN_WAVS, {"metadata.csv": "\n a | A \n\n b | B \n"}, RIGHT),
    "empty last column": (IN_WAVS, {"metadata.csv": "a|A|\nb|B|"}, RIGHT),
    "speaker behind": (IN_WAVS, {"metadata.csv": "a|A|0\nb|B|0"}, RIGHT),
    "speaker behind, one line": ("a.wav", {"metadata.csv": "a|A|0"}, {"a": ("A", "")}),
    "speakers behind": (IN_WAVS, {"metadata.csv": "a|A|ann\nb|B|bob"}, RIGHT),
    "speakers behind, asked": (IN_WAVS, {"metadata.csv": "a|A|ann\nb|B|bob"}, OF_TWO, "column"),
    "piper": (IN_WAVS, {"metadata.csv": "a|ann|A\nb|bob|B"}, OF_TWO, "column"),
    "piper, one speaker": (IN_WAVS, {"metadata.csv": "a|ann|A\nb|ann|B"}, RIGHT),
    "speaker and language before": (IN_WAVS, {"esd.list": "a.wav|ann|EN|A\nb.wav|ann|EN|B"}, RIGHT),
    "text before file": (IN_WAVS, {"list.txt": "A|wavs/a.wav\nB|wavs/b.wav"}, RIGHT),
    "a bar in a text": (
        "a.wav b.wav c.wav",
        {"metadata.csv": "a|A\nb|B\nc|one | two"},
        {**RIGHT, "c": ("one | two", "")},
    ),
    "a bar in one of three columns": (
        IN_WAVS,
        {"metadata.csv": "a|A|A\nb|B|B\nc|one|two|one|two"},
        "line 3: it has 5 columns, others 3: take ",
    ),
    "a comma in each text": (
        BESIDE,
        {"metadata.csv": "a.wav,A, it is said.\nb.wav,B, it says, so."},
        {"a": ("Printing was the first of arts., it is said.", ""), "b": (f"{TEXTS['B']}, it says, so.", "")},
    ),
    "a line end in quotes": (
        BESIDE,
        {"metadata.csv": 'a.wav,"one\ntwo"\nb.wav,"B"'},
        {**RIGHT, "a": ("one two", "")},
    ),
    "durations behind": (IN_WAVS, {"transcript.txt": "wavs/a.wav|raw|A|1.25\nwavs/b.wav|raw|B|2.5"}, RIGHT),
    "durations beside": (
        BESIDE,
        {"durations.csv": "a.wav,1.25\nb.wav,2", "text.csv": "a.wav,A\nb.wav,B"},
        RIGHT,
    ),
    "multilingual librispeech": (
        "audio/10/20/10_20_0.flac audio/11/20/11_20_0.flac",
        {
            "segments.txt": "10_20_0\thttp://a.org/b/c_64kb.mp3\t3.54\t9.1\n11_20_0\thttp://a.org/b.mp3\t7.5\t9",
            "transcripts.txt": "10_20_0\tA\n11_20_0\tB",
        },
        {"10_20_0": ("A", "10"), "11_20_0": ("B", "11")},
    ),
    # Tables with one
    "file and text": (IN_WAVS, {"metadata.csv": "file|text\na.wav|A\nb.wav|B"}, RIGHT),
    "nemo's words": (
        IN_WAVS,
        {"metadata.csv": 'audio_filepath,text,duration\na.wav,"A",1.25\nb.wav,"B",2'},
        RIGHT,
    ),
    "audio_path": (IN_WAVS, {"train.csv": 'audio_path,transcription\nwavs/a.wav,"A"\nwavs/b.wav,"B"'}, RIGHT),
    "deepspeech": (
        IN_WAVS,
        {"train.csv": 'wav_filename,wav_filesize,transcript\nwavs/a.wav,900,"A"\nwavs/b.wav,900,"B"'},
        RIGHT,
    ),
    "raw texts last": (IN_WAVS, {"metadata.csv": "file|normalized_text|raw_text\na|A|raw\nb|B|raw"}, RIGHT),
    "mels": (IN_WAVS, {"metadata.csv": "mels|text|speaker\na|A|ann\nb|B|bob"}, OF_TWO),
    "unknown name of the files": (IN_WAVS, {"metadata.csv": "record;text\na.wav;A\nb.wav;B"}, RIGHT),
    "unknown name of the texts": (
        IN_WAVS,
        {"metadata.csv": "file|says\na.wav|A"},
        "names no column 'text' but file",
    ),
    "common voice": (
        "clips/a.mp3 clips/b.mp3 clips/c.mp3",
        {
            "validated.tsv": "client_id\tpath\tsentence\tup_votes\nann\ta.mp3\tA\t2\nbob\tb.mp3\tB\t2",
            "train.tsv": "client_id\tpath\tsentence\tup_votes\nann\ta.mp3\tA\t2",
            "invalidated.tsv": "client_id\tpath\tsentence\tup_votes\nann\tc.mp3\tA\t0",
            "clip_durations.tsv": "clip\tduration[ms]\na.mp3\t2000\nb.mp3\t2000",
        },
        {**OF_TWO, "c": (None, "")},
    ),
    "hugging face": (BESIDE, {"metadata.csv": 'file_name,transcription\na.wav,"A"\nb.wav,"B"'}, RIGHT),
    "several lists": (
        IN_WAVS,
        {"filelists/train.txt": "wavs/a.wav|A", "filelists/val.txt": "wavs/b.wav|B"},
        RIGHT,
    ),
    "a list of speakers": (
        "ann/wavs/a.wav bob/wavs/b.wav",
        {"ann/metadata.csv": "a|A", "bob/metadata.csv": "b|B"},
        OF_TWO,
    ),
    # JSON
    "nemo": (
        IN_WAVS,
        {
            "train.json": manifest(
                *({"audio_filepath": f"wavs/{n.lower()}.wav", "duration": 1.2, "text": n} for n in "AB")
            )
        },
        RIGHT,
    ),
    "nemo of two": (
        IN_WAVS,
        {
            "manifest.jsonl": manifest(
                {"audio_filepath": "/x/wavs/a.wav", "text": "A", "speaker": "ann"},
                {"audio_filepath": "/x/wavs/b.wav", "text": "B", "speaker": "bob"},
            )
        },
        OF_TWO,
    ),
    "pieces": (
        BESIDE,
        {"metadata.csv": manifest({"audio_filepath": "a.wav", "offset": 2.5, "duration": 1, "text": "A"})},
        {"a": ("A", ""), "b": (None, "")},
    ),
    "metadata.jsonl": (
        BESIDE,
        {
            "metadata.jsonl": manifest(
                {"file_name": "a.wav", "text": "A"}, {"file_name": "b.wav", "text": "B"}
            )
        },
        RIGHT,
    ),
    "json list": (
        BESIDE,
        {"list.json": json.dumps([{"wav": "a.wav", "text": "A"}, {"wav": "b.wav", "text": "B"}], indent=1)},
        RIGHT,
    ),
    "json of texts": (BESIDE, {"texts.json": json.dumps({"a.wav": "A", "b.wav": "B"})}, RIGHT),
    "json of entries": (
        BESIDE,
        {
            "texts.json": json.dumps(
                {"a": {"text": "A", "speaker": "ann"}, "b": {"text": "B", "speaker": "bob"}}, indent=2
            )
        },
        OF_TWO,
    ),
    "speechbrain": (
        BESIDE,
        {
            "train.json": json.dumps(
                {
                    "u1": {"wav": "{data_root}/a.wav", "words": "A", "spk_id": "ann"},
                    "u2": {"wav": "{data_root}/b.wav", "words": "B", "spk_id": "bob"},
                }
            )
        },
        OF_TWO,
    ),
    "hi-fi tts": (
        BESIDE,
        {
            "92_manifest_clean_train.json": manifest(
                {"audio_filepath": "audio/92/a.flac", "text": "low", "text_normalized": "A"},
                {"audio_filepath": "audio/92/b.flac", "text": "low", "text_normalized": "B"},
            )
        },
        RIGHT,
    ),
    "a text of null": (
        BESIDE,
        {"m.jsonl": manifest({"file_name": "a.wav", "text": "A"}, {"file_name": "b.wav", "text": None})},
        {**RIGHT, "b": (None, "")},
    ),
    # A file for each text, or lines of a name and a text
    "beside": (BESIDE, {"a.txt": "A\n", "b.txt": "B\n"}, RIGHT),
    "beside, with the suffix": (BESIDE, {"a.wav.txt": "A", "b.wav.txt": "B"}, RIGHT),
    "in capitals": ("A.WAV B.WAV", {"A.TXT": "A", "B.TXT": "B"}, {"A": ("A", ""), "B": ("B", "")}),
    "beside twins": (f"{BESIDE} a.mp3 b.ogg", {"a.txt": "A", "b.txt": "B"}, RIGHT),
    "lab": (BESIDE, {"a.lab": "A", "b.lab": "B"}, RIGHT),
    "lab of times": (
        BESIDE,
        {"a.lab": "0 500000 sil\n500000 900000 p\n"},
        "a.lab has times of phones, no text",
    ),
    "timit": (
        "ann/SA1.WAV bob/SA2.WAV",
        {"ann/SA1.TXT": "0 46797 A", "bob/SA2.TXT": "0 5000 B"},
        {"SA1": ("A", "ann"), "SA2": ("B", "bob")},
    ),
    "audacity's labels": (
        BESIDE,
        {"a.txt": "0.000000\t2.500000\tA", "b.txt": "0.1\t2.5\tone\n2.5\t4.0\ttwo"},
        {**RIGHT, "b": ("one two", "")},
    ),
    "two rates": (
        "wav16/ann/a.wav wav16/bob/b.wav wav48/ann/a.wav wav48/bob/b.wav",
        {"txt/ann/a.txt": "A", "txt/bob/b.txt": "B"},
        OF_TWO,
    ),
    "copies at another rate": (
        f"{IN_WAVS} wavs_22k/a.wav wavs_22k/b.wav",
        {"metadata.csv": "a|A\nb|B"},
        RIGHT,
    ),
    "subtitles": (
        BESIDE,
        {
            "a.srt": "1\r\n00:00:00,000 --> 00:00:02,500\r\n- <i>Printing was</i>\r\n\r\n2\r\n"
            "00:00:02,500 --> 00:00:04,000\r\n{\\an8}the first\r\nof arts.\r\n",
            "b.vtt": "WEBVTT - made by hand\n\nNOTE b\n\n00:01.000 --> 00:02.000 align:left\n"
            "<v Ann>It is used in 1887,\n\nlast\n00:02.000 --> 00:03.000\nand now.\n",
        },
        {"a": ("A", ""), "b": ("B", "Ann")},
    ),
    "vits": (
        "DUMMY/ann/ann_1.wav DUMMY/bob/bob_1.wav",
        {"train.txt": "DUMMY2/ann/ann_1.wav|3|A\n", "val.txt": "DUMMY2/bob/bob_1.wav|4|B\n"},
        {"ann_1": ("A", "ann"), "bob_1": ("B", "bob")},
    ),
    "a tree of texts": (IN_WAVS, {"txt/a.txt": "A", "txt/b.txt": "B", "README.txt": "x"}, RIGHT),
    "vctk": (
        "wav48/ann/ann_001.wav wav48/bob/bob_001.wav",
        {"txt/ann/ann_001.txt": "A", "txt/bob/bob_001.txt": "B", "speaker-info.txt": "ID AGE\nann 23\n"},
        {"ann_001": ("A", "ann"), "bob_001": ("B", "bob")},
    ),
    "vctk, two microphones": (
        "wav48/ann/ann_001_mic1.flac wav48/ann/ann_001_mic2.flac wav48/bob/bob_001_mic1.flac",
        {"txt/ann/ann_001.txt": "A", "txt/bob/bob_001.txt": "B"},
        {"ann_001_mic1": ("A", "ann"), "bob_001_mic1": ("B", "bob")},
    ),
    "libritts": (
        "train-clean-100/19/198/19_198_000.wav train-clean-360/27/123/27_123_000.wav",
        {
            "train-clean-100/19/198/19_198_000.normalized.txt": "A",
            "train-clean-100/19/198/19_198_000.original.txt": "raw",
            "train-clean-360/27/123/27_123_000.normalized.txt": "B",
            "train-clean-100/19/198/19_198.trans.tsv": "19_198_000\traw\tA",
        },
        {"19_198_000": ("A", "19"), "27_123_000": ("B", "27")},
    ),
    "librispeech": (
        "dev/84/12/84-12-0000.flac dev/85/13/85-13-0000.flac",
        {
            "dev/84/12/84-12.trans.txt": "84-12-0000 A\n",
            "dev/85/13/85-13.trans.txt": "85-13-0000 B\n",
            "SPEAKERS.TXT": "84 | F",
        },
        {"84-12-0000": ("A", "84"), "85-13-0000": ("B", "85")},
    ),
    "kaldi": (BESIDE, {"text": "a A\nb B\n", "wav.scp": "a a.wav\n"}, RIGHT),
    "kaldi's names": (
        IN_WAVS,
        {
            "data/text": "ann-1 A\nbob-1 B\n",
            "data/wav.scp": "ann-1 /x/wavs/a.wav\nbob-1 sox wavs/b.wav -r 16000 -t wav - |\n",
            "data/utt2spk": "ann-1 ann\nbob-1 bob\n",
        },
        OF_TWO,
    ),
    "kaldi's speakers that nobody knows": (
        IN_WAVS,
        {"text": "u A\nv B", "wav.scp": "u wavs/a.wav\nv wavs/b.wav", "utt2spk": "u u\nv v"},
        RIGHT,
    ),
    "kaldi's segments without an end": (
        "a.wav",
        {"text": "u1 A", "wav.scp": "r a.wav", "segments": "u1 r 0"},
        "segments, u1: write NAME RECORDING START END",
    ),
    "arctic": ("wav/a.wav wav/b.wav", {"etc/txt.done.data": '( a "A" )\n( b "B" )\n'}, RIGHT),
    "a numbered script": ("1.wav 2.wav", {"script.txt": "1. A\n2) B\n"}, {"1": RIGHT["a"], "2": RIGHT["b"]}),
    "whisper": (BESIDE, {"a.json": '{"text": " A",\n "segments": []}', "b.json": '{"text": "B"}'}, RIGHT),
    "headings in words": (BESIDE, {"x.csv": "Recording;Spoken Text;Voice\na;A;ann\nb;B;bob"}, OF_TWO),
    "some in another format": ("a.wav b.m4a", {"metadata.csv": "a|A\nb|B"}, RIGHT),
    "converted and kept": ("a.wav b.wav b.m4a", {"a.txt": "A", "b.txt": "B"}, RIGHT),
    # What has a sentence
    "no texts": (BESIDE, {}, "has no texts: write metadata.csv"),
    "text grids": (BESIDE, {"a.TextGrid": "A"}, "has no texts: a.TextGrid is not read: write what is said"),
    "elan": (BESIDE, {"a.eaf": "<A>"}, "has no texts: a.eaf is not read: export its tiers in ELAN as subt"),
    "a document": (BESIDE, {"script.docx": "PK"}, "script.docx is not read: save it as plain text in UTF-8"),
    "parquet": (
        "",
        {"data/train.parquet": "PAR1"},
        "holds no sound files .*: train.parquet is not read: write",
    ),
    "no sound": ("", {"metadata.csv": "a|A"}, "holds no sound files .*: give a folder of recordings"),
    "m4a": ("", {"a.m4a": "x", "a.txt": "A"}, "holds no sound files .*: convert .m4a files, as by ffmpeg"),
    "latin-1": (BESIDE, {"metadata.csv": "a|caf\udce9"}, "metadata.csv line 1 is not UTF-8"),
    "latin-1, of another name": (
        BESIDE,
        {"list.csv": "a|caf\udce9\nb|B"},
        "has no texts: .*; .*list.csv line 1 is not UTF-8",
    ),
    "utf-16": (BESIDE, {"metadata.csv": "a|A\udcff"}, "metadata.csv line 1 is not UTF-8"),
    "one column": (BESIDE, {"metadata.csv": "a\nb\n"}, "metadata.csv, line 1: write name.text"),
    "a line cut short": (BESIDE, {"metadata.csv": "a|A\nb\n"}, "metadata.csv, line 2: write name.text"),
    "no column of speakers": (
        BESIDE,
        {"metadata.csv": "a|A\nb|B"},
        "line 1: write name.text.speaker",
        "column",
    ),
    "wrong json": (BESIDE, {"metadata.csv": '{"file": "a.wav", '}, "metadata.csv, line 1: not JSON"),
    "json without files": (
        BESIDE,
        {"metadata.csv": '{"text": "A"}'},
        "line 1: an entry needs audio_filepath",
    ),
    # What nothing says
    "a missing file": (BESIDE, {"metadata.csv": "a|A\nb|B\nc|A"}, {**RIGHT, None: ("A", "")}),
    "a missing text": (f"{BESIDE} c.wav", {"metadata.csv": "a|A\nb|B"}, {**RIGHT, "c": (None, "")}),
    "another's file of that name": (
        "ann/a.wav ann/b.wav",
        {"metadata.csv": "ann/a|A\nann/b|B\nbob/a|B"},
        {**RIGHT, None: ("B", "")},
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_data_set_is_read_or_refused_in_a_sentence(layout, tmp_path):
    sounds, others, wanted, *how = LAYOUTS[layout]
    folder = tmp_path / "set"
    folder.mkdir()
    for name in sounds.split():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()  # what it sounds like is not asked
    for name, content in others.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
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
