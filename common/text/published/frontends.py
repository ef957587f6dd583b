"""The text frontends of the published Tacotron 2, FastPitch and FastSpeech checkpoints.

`encode` gives the ids that the published code gives for the same string. Calling a frontend also splits what
is too long for one utterance, and reports what the published code drops silently.
"""

from __future__ import annotations

import re
import unicodedata
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import zip_longest

import numpy as np

from melforge.common.errors import InputError
from melforge.common.text import Analysis, OwnWords, SaidAs, Unspoken, Utterance, require_in_order
from melforge.common.text.cmudict import load_cmudict, load_heteronyms
from melforge.common.text.published.cleaners import FASTPITCH, FASTSPEECH, TACOTRON2, chain, collapse_blanks
from melforge.common.text.published.numbers import currencies, mask_currencies
from melforge.common.text.published.transliterate import bundled, unidecode
from melforge.common.text.split import CLAUSE_PAUSE, pause_between, split_clauses, split_sentences
from melforge.common.text.symbols import get_symbols, own_symbols

MAX_SYMBOLS = 250
_MIN_SYMBOLS = 32  # one character can be a word or two
_CHARS_PER_SYMBOL = 4  # at most, phonemes in braces included: longer strings need not be tried whole

_BRACES = re.compile(r"\{(.+?)\}")  # phonemes, as in "{HH AW1 S}"; the dot ends at the end of a line
_SILENT = frozenset('"*…•·¡¿')
_SILENT_CATEGORIES = frozenset(["Cc", "Cf", "Mn", "Me", "Pd", "Pi", "Pf", "Ps", "Pe", "Zl", "Zp", "Zs"])
_LETTERS = frozenset(["Lu", "Ll", "Lt", "Lo"])  # modifier letters are marks


@dataclass(frozen=True, eq=False)
class Encoded:
    """What the published code makes of one string."""

    normalised: str  # the cleaned text
    phonemes: str  # the cleaned text with the pronunciations that were looked up, in braces; else ""
    symbols: tuple[str, ...]
    ids: np.ndarray  # int64 [T_text]
    dropped: tuple[str, ...]  # what has no id


class _PublishedFrontend(ABC):
    """Symbols to ids, long texts to utterances."""

    name: str
    symbols: tuple[str, ...]
    own_words: Sequence[OwnWords] = ()
    reads_addresses = False

    def __init__(
        self, symbols: tuple[str, ...], without_id: str, to_ascii: Callable[[str], str], max_symbols: int
    ):
        """`without_id`: symbols that the published code drops although they stand in the set."""
        if max_symbols < _MIN_SYMBOLS:
            raise InputError(f"max_symbols must be at least {_MIN_SYMBOLS}, not {max_symbols}")
        self.symbols = symbols
        self.max_symbols = max_symbols
        self._to_ascii = to_ascii
        self._ids = {symbol: i for i, symbol in enumerate(self.symbols) if symbol not in without_id}

    def __call__(self, text: str, said: Sequence[SaidAs] = ()) -> Analysis:
        """A text of up to max_symbols as one utterance; a longer one by sentences, then by clauses."""
        return Analysis.joined(self.sentences(text, said))

    def sentences(self, text: str, said: Sequence[SaidAs] = ()) -> Iterator[Analysis]:
        """The analysis of each utterance."""
        require_in_order(said, text)
        for own in self.own_words:
            said = own.add_to(said, text)
        spoken, origin = _rewritten(text, said)
        for piece, offset, encoded, pause in self._parts(spoken):
            places = origin[offset : offset + len(piece)] if said else ()
            written = text[places[0][0] : places[-1][1]] if places else piece
            utterance = Utterance(written, encoded.normalised, encoded.symbols, encoded.ids, pause)
            is_spoken = any(symbol[-1].isalnum() for symbol in encoded.symbols)
            unspoken = self._unspoken(piece, offset, encoded.dropped)
            if said:
                unspoken = [Unspoken(u.symbol, origin[u.position][0], written) for u in unspoken]
            yield Analysis((utterance,) if is_spoken else (), tuple(unspoken))

    def encode(self, text: str) -> Encoded:
        """The ids of one string, whatever its length."""
        normalised, phonemes, spelt = self._spell(text)
        dropped = tuple(symbol for symbol in spelt if symbol not in self._ids)
        symbols = tuple(symbol for symbol in spelt if symbol in self._ids) if dropped else tuple(spelt)
        ids = np.array(list(map(self._ids.__getitem__, symbols)), dtype=np.int64)
        return Encoded(normalised, phonemes, symbols, ids, dropped)

    @abstractmethod
    def _spell(self, text: str) -> tuple[str, str, list[str]]:
        """The normalised text, the phonemes, and the symbols, with those that have no id."""

    def _parts(self, text: str) -> Iterator[tuple[str, int, Encoded, float]]:
        """The parts of a text: each with its offset, what it became, and the pause after it."""
        whole = self._try(text)
        if whole and len(whole.ids) <= self.max_symbols:
            yield text, 0, whole, 0.0
            return
        sentences = split_sentences(text)
        starts = [offset for _, offset in sentences[1:]]
        for (sentence, offset), following in zip_longest(sentences, starts):
            pause = 0.0 if following is None else pause_between(text, offset + len(sentence), following)
            pieces = self._fit(sentence, offset)
            for piece in pieces[:-1]:
                yield *piece, CLAUSE_PAUSE
            yield *pieces[-1], pause

    def _fit(self, text: str, offset: int) -> list[tuple[str, int, Encoded]]:
        """A sentence in parts that hold max_symbols at most."""
        encoded = self._try(text)
        if encoded and len(encoded.ids) <= self.max_symbols:
            return [(text, offset, encoded)]
        size = self.max_symbols
        if encoded:
            parts = -(-len(encoded.ids) // size)
            # A third more than an equal share: clauses are of unequal length, and no last word is left alone.
            size = max(1, len(text) * 4 // (3 * parts))
        return [piece for part, at in split_clauses(text, size) for piece in self._fit(part, offset + at)]

    def _try(self, text: str) -> Encoded | None:
        """A string as one utterance, of whatever length; None where it is certainly too long."""
        if len(text) > _CHARS_PER_SYMBOL * self.max_symbols:
            return None
        # The published code loses the lines behind a line that holds phonemes.
        return self.encode(text.replace("\n", " ") if "{" in text else text)

    def _unspoken(self, text: str, offset: int, dropped: Iterable[str]) -> list[Unspoken]:
        """Characters without a transliteration or an id, but for silent marks.

        Dropped symbols are searched in text order, so that of two equal ones the first is reported.
        """
        left = Counter(symbol.lower() for symbol in dropped)
        if not left and text.isascii():
            return []
        found = []
        for match in _BRACES.finditer(text):
            for phone in re.finditer(r"\S+", match[1]):
                if left["@" + phone[0].lower()]:
                    left["@" + phone[0].lower()] -= 1
                    found.append((offset + match.start(1) + phone.start(), phone[0]))
        for i, char in enumerate(self._mask(text)):
            written = self._to_ascii(char)
            lost = [c for c in (char.lower(), *written.lower()) if left[c]]
            left.subtract(lost[:1])
            category = unicodedata.category(char)
            is_silent = char in _SILENT or category in _SILENT_CATEGORIES
            # A letter that is written as a blank or an apostrophe is not spoken either ("ь").
            is_mute = category in _LETTERS and not any(map(str.isalnum, written))
            if (lost or not written or is_mute) and not is_silent:
                found.append((offset + i, char))
        return [Unspoken(symbol, position, text) for position, symbol in sorted(found)]

    def _mask(self, text: str) -> str:
        """The text with spaces in place of what is not spelt by its characters."""
        return _BRACES.sub(lambda match: " " * len(match[0]), text)


def _rewritten(text: str, said: Sequence[SaidAs]) -> tuple[str, list[tuple[int, int]]]:
    """The text with what is said in its parts, and from where to where in the text each character stems."""
    out: list[str] = []
    origin: list[tuple[int, int]] = []
    end = 0
    for one in (*said, SaidAs(len(text), len(text), "")) if said else ():
        out.append(text[end : one.start])
        origin += [(place, place + 1) for place in range(end, one.start)]
        # FastPitch takes what touches an opening brace for letters.
        blank = (
            " "
            if one.spoken.startswith("{") and not text[max(0, one.start - 1) : one.start].isspace()
            else ""
        )
        out.append(blank + one.spoken)
        origin += [(one.start, one.end)] * len(out[-1])
        end = one.end
    return ("".join(out), origin) if said else (text, origin)


def _spelt(text: str, clean: Callable[[str], str] = str) -> list[str]:
    """The characters of a cleaned text; of what stands in braces the phones."""
    symbols: list[str] = []
    end = 0
    for match in _BRACES.finditer(text):
        symbols += clean(text[end : match.start()])
        symbols += ["@" + phone for phone in match[1].split()]
        end = match.end()
    return [*symbols, *clean(text[end:])]


def _character_map(cleaners: str | Sequence[str], to_ascii: Callable[[str], str]) -> Callable[[str], str]:
    """What becomes of one character before the cleaners' rules: basic_cleaners leaves it as it is."""
    names = [cleaners] if isinstance(cleaners, str) else cleaners
    return str if set(names) <= {"basic_cleaners"} else to_ascii


class Tacotron2Frontend(_PublishedFrontend):
    """Graphemes, with phonemes where the text has them in braces."""

    name = "tacotron2"
    _cleaners = TACOTRON2
    _character = staticmethod(bundled)

    def __init__(
        self,
        cleaners: str | Sequence[str] = "english_cleaners",
        *,
        symbols: str | Sequence[str] | None = None,
        max_symbols: int = MAX_SYMBOLS,
    ):
        """`symbols`: of a model that was trained with others than the published ones, see `own_symbols`."""
        chosen = get_symbols(self.name) if symbols is None else own_symbols(symbols)
        super().__init__(chosen, "_~", _character_map(cleaners, self._character), max_symbols)
        self._clean = chain(cleaners, self._cleaners)

    def _spell(self, text: str) -> tuple[str, str, list[str]]:
        # The published cleaners know nothing of braces; the ids are made from what stands between them.
        normalised, line = self._clean(text), text.partition("\n")[0]
        return normalised, "", _spelt(line, self._clean) if _BRACES.search(line) else list(normalised)


class FastSpeechFrontend(Tacotron2Frontend):
    """As Tacotron 2's, with the transliteration of the Unidecode package."""

    name = "fastspeech"
    _cleaners = FASTSPEECH
    _character = staticmethod(unidecode)


class FastPitchFrontend(_PublishedFrontend):
    """Graphemes and phonemes mixed: the phonemes of CMUdict for words with one pronunciation."""

    name = "fastpitch"

    _TOKEN = re.compile(r"\{[^}]+\}|\S+")
    _WORD = re.compile(r"(?P<word>[a-zA-ZÀ-ž]+(?:'[a-zA-ZÀ-ž]{1,2})?)|(?P<other>\{[^}]+\}|[^a-zA-ZÀ-ž{}]+)")

    def __init__(
        self,
        cleaners: str | Sequence[str] = "english_cleaners_v2",
        symbol_set: str = "english_basic",
        *,
        symbols: str | Sequence[str] | None = None,
        p_arpabet: float = 1.0,
        ambiguous: str = "ignore",
        seed: int | None = None,
        prepend_space: bool = False,
        append_space: bool = False,
        max_symbols: int = MAX_SYMBOLS,
    ):
        """`symbols`: in place of a published set, see `own_symbols`.

        `p_arpabet`: the share of words to look up, drawn word by word from a stream that `seed` starts.

        `ambiguous`: a word with several pronunciations keeps its letters ("ignore"), or takes the "first" one
        or a "random" one.
        """
        if not 0 <= p_arpabet <= 1:
            raise InputError(f"p_arpabet must be between 0 and 1, not {p_arpabet}")
        if ambiguous not in ("ignore", "first", "random"):
            raise InputError(f"ambiguous must be 'ignore', 'first' or 'random', not {ambiguous!r}")
        chosen = get_symbols(symbol_set) if symbols is None else own_symbols(symbols)
        super().__init__(chosen, "", _character_map(cleaners, bundled), max_symbols)
        self._clean = lru_cache(maxsize=4096)(chain(cleaners, FASTPITCH))  # of one token
        self._p_arpabet = p_arpabet
        self._ambiguous = ambiguous
        self._random = np.random.RandomState(seed)  # the published code draws from this legacy stream
        self._draws = p_arpabet < 1 or ambiguous == "random"  # else what is drawn changes nothing
        self._variants = lru_cache(maxsize=4096)(lambda word: load_cmudict().pronunciations(word))
        self._before, self._after = [" "] * prepend_space, [" "] * append_space

    def _spell(self, text: str) -> tuple[str, str, list[str]]:
        # Each token is cleaned alone, so that rules for two tokens ("5 pm") never apply; money comes before.
        tokens = self._TOKEN.findall(currencies(text))
        cleaned = " ".join(token if token[0] == "{" else self._clean(token) for token in tokens)
        cleaned = collapse_blanks(cleaned)
        phonemes = self._look_up(cleaned) if self._p_arpabet else ""
        written = phonemes if self._p_arpabet else cleaned
        return cleaned, phonemes, [*self._before, *_spelt(written), *self._after]

    def _look_up(self, text: str) -> str:
        """The text with pronunciations in braces in place of some words; a stray brace is lost."""
        words = self._WORD.finditer(text)
        return "".join(match["other"] or self._pronounce(match["word"]) for match in words)

    def _pronounce(self, written: str) -> str:
        """The phones of a word, or of its stem with a Z for each s taken off; or else its letters."""
        word, endings = written, ""
        if self._draws and self._random.uniform() >= self._p_arpabet:
            return written
        while word.lower() not in load_heteronyms():
            variants = self._variants(word)
            if len(variants) == 1 or (variants and self._ambiguous != "ignore"):
                random = len(variants) > 1 and self._ambiguous == "random"
                choice = self._random.choice(len(variants)) if random else 0
                return f"{{{' '.join(variants[choice])}{endings}}}"
            ending = "'s" if word.endswith("'s") else "s"
            if variants or len(word) <= len(ending) or not word.endswith(ending):
                break
            word, endings = word.removesuffix(ending), endings + " Z"
        return written

    def _try(self, text: str) -> Encoded | None:
        if not self._draws:
            return super()._try(text)
        state = self._random.get_state()
        encoded = super()._try(text)
        if encoded and len(encoded.ids) > self.max_symbols:
            self._random.set_state(state)  # the words are drawn again, for the parts
        return encoded

    def _mask(self, text: str) -> str:
        return mask_currencies(super()._mask(text))
