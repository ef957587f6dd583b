"""A folder of recordings with their texts, as people keep them: sound file, text and speaker of each line.

Texts stand in a list (LJSpeech's metadata.csv, a table with a heading, NeMo's manifest, LibriSpeech's
.trans.txt) or each in a file: NAME.txt beside NAME.wav, or in a tree of its own as in VCTK.
"""

import math
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from melforge.common.errors import InputError
from melforge.common.files import folded, read_text
from melforge.common.recognition.lists import read_list
from melforge.common.recognition.recordings import LISTS, SUFFIXES
from melforge.common.training.corpus.dataset import METADATA

LONGEST_NAME = 100
SPEAKER_FROM = ("folder", "column", "none")
# Sound that is to be converted first; a line of it is left out with the way to do it.
CONVERTED = (".m4a", ".mp4", ".aac", ".wma", ".amr", ".webm", ".3gp", ".caf", ".mov", ".mkv", ".sph", ".wv")
SOUNDS = (*SUFFIXES, *CONVERTED)  # of a clip in several formats the first is used
# A folder of one of several forms of the same clips: mp3, wav48, wavs_22k.
RATE = r"(16|22|24|44|48)|[_-]?(8|16|22|24|32|44|48)(000|050|100|(\.05|\.1)?k)(hz)?"
FORM = re.compile(rf"({'|'.join(suffix[1:] for suffix in SOUNDS)})s?({RATE})?")
SUBTITLES = (".srt", ".vtt")
# Of one recording; the first one there counts.
TEXTS = (".normalized.txt", ".original.txt", ".txt", ".lab", *SUBTITLES)
# What Common Voice has beside its lists of clips that are right.
NOT_VALID = ("invalidated.tsv", "other.tsv", "reported.tsv", "unvalidated_sentences.tsv")
HTS_LABEL = re.compile(r"\s*\d+\s+\d+\s+\S+")  # times and a phone, in place of a text
# Who says a line: WebVTT's <v Ann>, or ANN:, [Ann]: where that stands more than once.
VOICE = re.compile(r"<v(?:\.\S+)? ([^<>]+)>|\[?([^\W\d_][\w .'-]{0,30}?)\]?:\s+")
TIMES = re.compile(r"^(0 \d{4,} |\d+\.\d+\t\d+\.\d+\t)", re.M)  # TIMIT's, and Audacity's labels
# What is not read, and what to do with it.
AS_TEXT = "save it as plain text in UTF-8, NAME.txt beside NAME.wav or all in metadata.csv"
UNREAD = {
    ".eaf": "export its tiers in ELAN as subtitles (SubRip), NAME.srt beside NAME.wav",
    ".textgrid": "write what is said to NAME.txt beside NAME.wav, or with times to NAME.srt",
    **dict.fromkeys((".docx", ".doc", ".odt", ".rtf", ".pdf"), AS_TEXT),
    **dict.fromkeys(
        (".xlsx", ".xls", ".ods"), "save it as metadata.csv (CSV in UTF-8), with columns file, text"
    ),
    ".parquet": "write its sounds and texts to files first, as docs/voices.md shows",
    **dict.fromkeys((".zip", ".tar", ".gz", ".tgz", ".7z"), "unpack it"),
}
NO_TEXT = re.compile(r"[\d\s.:,/-]*|\w+://\S*")  # numbers, or an address


@dataclass(frozen=True)
class Take:
    """A line of a corpus; `sound` or `text` is None where there is none, and `source` says where to look."""

    name: str  # in the corpus: unique, without a suffix
    source: str  # the file, seen from the folder
    sound: Path | None
    text: str | None
    speaker: str = ""
    piece: tuple[float, float] | None = None  # of the sound file, in seconds; None is all of it
    turns: tuple[tuple[str, str], ...] = ()  # speakers and what they say, where the text names several


def require_takes(folder: Path) -> None:
    if not folder.is_dir():
        what = "is no folder" if folder.exists() else "not found"
        raise FileNotFoundError(f"{folder} {what}: give a folder of recordings")


def find_takes(folder: Path, speaker_from: str | None = None) -> list[Take]:
    """All recordings and texts in and below a folder; an InputError where there is nothing to prepare.

    Speakers are those of a column of a list, or of folders. Where `speaker_from` is None they are those of a
    column that a heading line names, else of folders: by whose names those of all their files begin, or of
    subfolders if there are several.
    """
    require_takes(folder)
    files = [path for path in sorted(folder.rglob("*")) if _is_shown(path, folder) and path.is_file()]
    sounds = _Sounds(path for path in files if path.suffix.lower() in SOUNDS)
    if all(sound.suffix.lower() in CONVERTED for sound in sounds.files):
        next(folder.iterdir(), None)  # where it may not be read, rglob finds nothing
        kinds = " ".join(SUFFIXES)
        way_out = (
            convert(sounds.files[0]) if sounds.files else _unread(files) or "give a folder of recordings"
        )
        raise InputError(f"{folder} holds no sound files ({kinds}): {way_out}")
    texts = _Texts(path for path in files if path.name.lower().endswith(TEXTS))
    lists = [path for path in files if path.name == METADATA]
    found = [take for path in lists for take in _from_list(folder, path, sounds, speaker_from)]
    kaldi = [] if lists else [path for path in files if path.name == "wav.scp"]
    found += (take for path in kaldi for take in _from_kaldi(folder, path, sounds))
    lists += kaldi
    taken = {sounds.key(take.sound) for take in found if take.sound}
    for sound in sounds.files:
        if sounds.key(sound) not in taken and (text := texts.of(sound)) is not None:
            found.append(_with_turns(_take(folder, sound, sound, ""), text))
            taken.add(sounds.key(sound))
    others = [path for path in files if path.suffix.lower() in (*LISTS, ".data") or path.name == "text"]
    why_not = ""
    for path in () if lists or taken >= set(map(sounds.key, sounds.files)) else others:
        if path in texts.used or path.name in NOT_VALID:
            continue
        try:
            listed = _if_a_list(folder, path, sounds, speaker_from)
        except InputError as error:
            why_not = why_not or f"; {error}"
            continue
        found += (take for take in listed if take.sound is None or sounds.key(take.sound) not in taken)
        taken |= {sounds.key(take.sound) for take in listed if take.sound}
        lists += [path] if listed else []
    if not any(take.text is not None for take in found):
        way_out = _unread(files) or f"write {METADATA} (name|text), or NAME.txt beside NAME.wav"
        raise InputError(f"{folder} has no texts: {way_out}{why_not}")
    for sound in sounds.files:
        if sounds.key(sound) not in taken:
            found.append(_take(folder, sound, sound, None))
            taken.add(sounds.key(sound))
    found += [_take(folder, path, None, "") for path in texts.without_sound()]
    if speaker_from == "column" and not lists:
        raise InputError(f"{folder} has no {METADATA}, so no column of speakers: use --speaker-from folder")
    if speaker_from == "none":
        found = [replace(take, speaker="", turns=()) for take in found]
    elif speaker_from == "folder" or not any(take.speaker or take.turns or speaker_from for take in found):
        found = _by_folder(folder, found, asked=speaker_from == "folder")
    return _with_unique_names(found)


def _unread(files: Iterable[Path]) -> str:
    """What to do with a file whose kind is not read; "" where there is none."""
    found = ((path, UNREAD[kind]) for path in files if (kind := path.suffix.lower()) in UNREAD)
    return next((f"{path.name} is not read: {what}" for path, what in found), "")


def convert(sound: Path) -> str:
    """What to do with a sound file of another kind."""
    return f"convert {sound.suffix} files, as by ffmpeg -i NAME{sound.suffix} NAME.wav"


class _Sounds:
    """Sound files, by the names that lists have for them; of several forms of a clip the best comes first."""

    def __init__(self, files: Iterable[Path]):
        def order(path: Path) -> tuple[str, str, int, int, Path]:
            name = self.key(path)
            microphone = path.stem[len(Path(name).name) :]
            return name, microphone, SOUNDS.index(path.suffix.lower()), -path.stat().st_size, path

        self.files = sorted(files, key=order)
        self._by_path: defaultdict[str, list[Path]] = defaultdict(list)
        self._by_name: defaultdict[str, list[Path]] = defaultdict(list)
        for file in self.files:
            for path in {file, file.with_suffix("")}:
                self._by_path[folded(os.path.abspath(path))].append(file)  # noqa: PTH100
                self._by_name[folded(path.name)].append(file)

    @staticmethod
    def key(sound: Path) -> str:
        """The same for a clip in several formats, or by VCTK's two microphones."""
        folders = [part for part in sound.parts[:-1] if not FORM.fullmatch(part.lower())]
        return re.sub(r"_mic\d$", "", folded(Path(*folders, sound.stem)))

    def find(self, name: str, folder: Path, alone: bool = True) -> Path | None:
        """The file that a list in `folder` means: by its path, seen from there or from a folder above it, or
        where no other is called so in the list (`alone`) or below its folder, by its name.
        """
        parts = [part for part in name.replace("\\", "/").split("/") if part not in ("", ".")]
        if not parts or "\0" in name:
            return None
        ways = [folder / name, folder / name.replace("\\", "/")]
        for first in range(len(parts) if alone else max(1, len(parts) - 1)):
            ways += (folder.joinpath(*begin, *parts[first:]) for begin in ((), ("wavs",)))
        for way in ways:
            if found := self._at(os.path.abspath(way)):  # noqa: PTH100
                return found
        below = [file for file in self._named(parts[-1]) if file.is_relative_to(folder)]
        below = below or (
            [] if any(file.is_relative_to(folder) for file in self.files) else self._named(parts[-1])
        )
        return below[0] if alone and len({self.key(file) for file in below}) == 1 else None

    def _at(self, path: str) -> Path | None:
        found = self._by_path.get(folded(path)) or self._by_path.get(folded(_without_suffix(path)), ())
        exact = (file for file in found if os.path.abspath(file).startswith(path))  # noqa: PTH100
        return next(exact, found[0] if found else None)

    def _named(self, name: str) -> list[Path]:
        return self._by_name.get(folded(name)) or self._by_name.get(folded(_without_suffix(name)), [])


def _without_suffix(name: str) -> str:
    """The name of a sound file without its suffix: another format of it may be there."""
    return name[: -len(suffix)] if (suffix := Path(name).suffix).lower() in SOUNDS else name


class _Texts:
    """Files that hold the text of one recording each."""

    def __init__(self, files: Iterable[Path]):
        self.used: set[Path] = set()
        self._files = sorted(files, key=lambda path: (_kind_of_text(path), path))
        self._by_path: dict[str, Path] = {}
        self._by_name: defaultdict[str, list[Path]] = defaultdict(list)
        for path in self._files:
            stem = _stem_of_text(path)
            self._by_path.setdefault(folded(stem), path)
            for name in (f"{path.parent.name}/{stem.name}", stem.name):
                self._by_name[folded(name)].append(path)

    def of(self, sound: Path) -> Path | None:
        """The one beside a recording, or that alone has its name, or its and its folder's, elsewhere."""
        stem = re.sub(r"_mic\d$", "", sound.stem)
        found = next(
            (
                text
                for name in (sound.stem, sound.name, stem)
                if (text := self._by_path.get(folded(sound.with_name(name))))
            ),
            None,
        )
        for name in (f"{sound.parent.name}/{stem}", stem):
            some = self._by_name.get(folded(name), [])
            found = found or (some[0] if len({path.parent for path in some}) == 1 else None)
        if found:
            self.used.add(found)
        return found

    def without_sound(self) -> list[Path]:
        """Those that no recording took, in folders like those of which some were taken."""
        taken = {_stem_of_text(path) for path in self.used}
        left = [path for path in self._files if _stem_of_text(path) not in taken]
        like = {(path.parent.parent, path.suffix) for path in self.used}
        return sorted(path for path in left if (path.parent.parent, path.suffix) in like)


def _stem_of_text(path: Path) -> Path:
    return path.with_name(path.name[: -len(TEXTS[_kind_of_text(path)])])


def _kind_of_text(path: Path) -> int:
    return next(number for number, suffix in enumerate(TEXTS) if path.name.lower().endswith(suffix))


def _lines_in(path: Path) -> list[str]:
    """What is said, without the numbers, times and marks of subtitles, labels and the like."""
    text = read_text(path)
    if path.suffix.lower() == ".lab" and HTS_LABEL.match(text):
        raise InputError(f"{path} has times of phones, no text: write {METADATA} (name|text)")
    if path.suffix.lower() not in SUBTITLES:
        return TIMES.sub("", text).split("\n")
    cues = re.split(r"\n\s*\n", text)
    lines = (line for cue in cues for line in cue.partition("-->")[2].split("\n")[1:])
    return [re.sub(r"<(?!v[ .])[^<>]*>|\{\\[^{}]*\}|^\s*-\s", "", line) for line in lines]


def _with_turns(take: Take, text: Path) -> Take:
    """A take with its text, and who says what. A text that is no subtitles tells that with most of its lines,
    of two speakers at least: others may begin with "Note:".
    """
    lines = [line for one in _lines_in(text) if (line := one.strip())]
    labels = Counter(found[2] for line in lines if (found := VOICE.match(line)))
    labels = {name: times for name, times in labels.items() if times > 1}
    if text.suffix.lower() not in SUBTITLES and (len(labels) < 2 or 2 * sum(labels.values()) < len(lines)):
        labels = {}
    turns = [("", "")]
    for line in lines:
        found = VOICE.match(line)
        if found and (found[1] or found[2] in labels):
            line, name = line[found.end() :], found[1] or found[2]
            turns += [] if name == turns[-1][0] else [(name, "")]
        speaker, said = turns[-1]
        turns[-1] = speaker, " ".join([*said.split(), *line.split()])
    turns = [turn for turn in turns if turn[1]]
    whole, speakers = " ".join(said for _, said in turns), {speaker for speaker, _ in turns}
    if len(speakers) > 1:
        return replace(take, text=whole, turns=tuple((speaker or "others", said) for speaker, said in turns))
    return replace(take, text=whole, speaker="".join(speakers))


def _if_a_list(folder: Path, path: Path, sounds: _Sounds, speaker_from: str | None) -> list[Take]:
    """The lines of a file that may be a list; none where most of them name no recording or have no text."""
    takes = list(_from_list(folder, path, sounds, speaker_from))
    has_texts = any(take.text and not NO_TEXT.fullmatch(take.text) for take in takes)
    return takes if has_texts and 2 * sum(take.sound is not None for take in takes) > len(takes) else []


def _from_list(folder: Path, path: Path, sounds: _Sounds, speaker_from: str | None) -> Iterator[Take]:
    """The lines of a list; their names are seen from its folder, with or without wavs/ and suffix."""
    rows = read_list(path, lambda name: sounds.find(name, path.parent) is not None, speaker_from == "column")
    times = Counter(_base_of(name) for name in {row.file for row in rows})
    for row in rows:
        sound = sounds.find(row.file, path.parent, times[_base_of(row.file)] == 1)
        place = sound or Path(os.path.normpath(path.parent / row.file.replace("\\", "/")))
        piece = None if row.offset is None else (row.offset, row.offset + (row.duration or math.inf))
        yield replace(_take(folder, place, sound, row.text), speaker=row.speaker, piece=piece)


def _from_kaldi(folder: Path, scp: Path, sounds: _Sounds) -> Iterator[Take]:
    """The lines of `text` beside Kaldi's wav.scp, with `segments` and `utt2spk` where these are there."""

    def table(name: str) -> dict[str, str]:
        path = scp.with_name(name)
        lines = read_text(path).split("\n") if path.is_file() else ()
        rows = (line.strip().split(maxsplit=1) for line in lines)
        return {row[0]: row[1] for row in rows if len(row) == 2}

    files, segments, speakers = map(table, (scp.name, "segments", "utt2spk"))
    for name, command in files.items():
        if command.endswith("|"):  # a program writes it: "sox a.flac -t wav - |"
            files[name] = next((word for word in command.split() if Path(word).suffix), command)
    times = Counter(map(_base_of, files.values()))
    if all(name == speaker for name, speaker in speakers.items()):  # nobody knows them
        speakers = {}
    for name, text in table("text").items():
        recording, *piece = segments.get(name, name).split()
        file = files.get(recording, recording)
        sound = sounds.find(file, scp.parent, times[_base_of(file)] <= 1)
        take = _take(folder, sound or scp.parent / file, sound, text)
        try:
            start, end = map(float, piece or (0, math.inf))
        except ValueError:
            raise InputError(f"{scp.with_name('segments')}, {name}: write NAME RECORDING START END") from None
        yield replace(take, speaker=speakers.get(name, ""), piece=(start, end) if piece else None)


def _base_of(name: str) -> str:
    return folded(re.split(r"[/\\]", name)[-1])


def _take(folder: Path, place: Path, sound: Path | None, text: str | None) -> Take:
    seen = place.relative_to(folder) if place.is_relative_to(folder) else Path(place.name)
    is_sound = sound is not None or seen.suffix.lower() in (*SOUNDS, ".txt", ".lab")
    parts = (seen.with_suffix("") if is_sound else seen).parts
    name = "-".join(part for part in parts if part != "wavs")
    name = re.sub(r"[^\w.+-]+", "_", name)[:LONGEST_NAME]
    return Take(name, seen.as_posix(), sound, text and " ".join(text.split()))


def _by_folder(folder: Path, takes: Sequence[Take], asked: bool) -> list[Take]:
    """Each take's speaker is the folder by whose name its own begins ("p225/p225_001"), if all have one, or
    the subfolder that it lies in, if all do; where there are several.
    """
    folders = [
        [part for part in Path(take.source).parts[:-1] if not FORM.fullmatch(part.lower())] for take in takes
    ]
    stems = [Path(take.source).name for take in takes]
    named = [
        next((part for part in parts if re.match(rf"{re.escape(part)}[_-]", stem)), "")
        for parts, stem in zip(folders, stems, strict=True)
    ]
    tops = [parts[0] if parts else "" for parts in folders]
    for names in (named, tops):
        found = {name for name, take in zip(names, takes, strict=True) if take.sound}
        if len(found) > 1 and ("" not in found or (asked and names is tops)):
            return [replace(take, speaker=name or "others") for take, name in zip(takes, names, strict=True)]
    if asked:
        raise InputError(f"{folder} has no subfolders of several speakers: use --speaker-from none")
    return list(takes)


def _with_unique_names(takes: Sequence[Take]) -> list[Take]:
    """Takes of the same name get numbers: "a", "a-2"; not those that others have already. Names that differ
    in case only are the same: some file systems have one file for both.
    """
    used = {folded(take.name) for take in takes}
    seen: set[str] = set()
    out = []
    for take in takes:
        name = take.name
        if folded(name) in seen:
            name = next(name for n in count(2) if folded(name := f"{take.name}-{n}") not in used)
        seen.add(folded(name))
        used.add(folded(name))
        out.append(replace(take, name=name))
    return out


def _is_shown(path: Path, folder: Path) -> bool:
    return not any(part.startswith(".") for part in path.relative_to(folder).parts)
