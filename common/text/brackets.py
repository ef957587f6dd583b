"""Marks in brackets, without XML: [pause:0.5s], [word](/phonemes/), [rate:80%]...[/rate].

What is not certainly meant so stays text: a link's address, an attribute without its end, a wrong number.
"""

from __future__ import annotations

import re

from melforge.common.errors import InputError
from melforge.common.text.marked import PassageBuilder
from melforge.common.text.phonemes import in_braces
from melforge.common.text.ssml import PROSODY, seconds_of
from melforge.common.text.style import PLAIN
from melforge.common.text.symbols import ARPABET, BRITISH

_MARK = re.compile(
    r"\[(?:pause:(?P<pause>[\d.]{1,8}m?s)|(?P<name>rate|pitch|range|volume):(?P<value>[\w.%+-]{1,12})"
    r"|/(?P<end>rate|pitch|range|volume))\]"
    r"|\[(?P<word>[^\[\]\n]{1,80})\]\(/(?P<phonemes>[^/()\[\]\n]{1,160})/\)"
)
# No word is spelt with these.
_IPA_ONLY = re.compile("[ɑɒɐəɚɝɜɛɪɨʊʌɔɹɾʃʒŋɡɫʔˈˌːʤʧɲ]")


def read_brackets(text: str) -> PassageBuilder | None:
    """The passages of a text with such marks; None where there is none."""
    marks = _meant(text)
    if not marks:
        return None
    passages, end = PassageBuilder(), 0
    styles = []
    for mark in marks:
        passages.write(text[end : mark.start()], end)
        end = mark.end()
        if mark["pause"]:
            passages.pause(seconds_of(mark["pause"]))
        elif mark["word"]:
            said = [(0, len(mark["word"]), _braces(mark["phonemes"]))]
            passages.write(mark["word"], mark.start("word"), said)
        elif mark["name"]:
            styles.append(passages.style)
            passages.style = PROSODY[mark["name"]](passages.style, mark["value"])
        else:
            passages.style = styles.pop()
    passages.write(text[end:], end)
    passages.finish()
    return passages


def _meant(text: str) -> list[re.Match[str]]:
    """The marks that can be nothing else; of attributes those with a beginning and an end."""
    found: dict[int, re.Match[str]] = {}
    waiting: list[re.Match[str]] = []
    for mark in _MARK.finditer(text):
        try:
            if mark["name"]:
                PROSODY[mark["name"]](PLAIN, mark["value"])
                waiting.append(mark)
            elif mark["end"]:
                if mark["end"] in (one["name"] for one in waiting[-8:]):
                    while (begin := waiting.pop())["name"] != mark["end"]:
                        pass
                    found |= {begin.start(): begin, mark.start(): mark}
            elif mark["word"]:
                if _braces(mark["phonemes"]):
                    found[mark.start()] = mark
            elif mark["pause"] and seconds_of(mark["pause"]):
                found[mark.start()] = mark
        except InputError:
            continue
    return [found[start] for start in sorted(found)]


def _braces(phonemes: str) -> str:
    """ARPAbet with blanks or stress, or IPA; "" for what may be an address: /docs/."""
    parts = phonemes.split()
    if set(parts) <= {*ARPABET, *BRITISH} and (len(parts) > 1 or parts[0][-1].isdigit()):
        return in_braces(phonemes)
    return in_braces(phonemes, "ipa") if _IPA_ONLY.search(phonemes) else ""
