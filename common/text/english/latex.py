"""LaTeX as the signs and words that it sets, padded to its length: every place in the text stays the same."""

from __future__ import annotations

import re

from melforge.common.text.english.reading import tables
from melforge.common.text.english.reading.cursor import FILL, LeftOut
from melforge.common.text.english.word_parts import words

_SIGNS = {name: letter for letter, name in tables.GREEK.items()}
_SIGNS |= {name.capitalize(): letter.upper() for name, letter in _SIGNS.items()}
_SIGNS |= {"varepsilon": "ε", "vartheta": "θ", "varphi": "φ", "ell": "l"}
_SIGNS |= dict(
    pair.split(":")
    for pair in words("""times:× cdot:⋅ div:÷ pm:± leq:≤ le:≤ geq:≥ ge:≥ neq:≠ ne:≠ approx:≈ simeq:≈ equiv:≡
    sim:~ propto:∝ infty:∞ in:∈ notin:∉ cup:∪ cap:∩ subset:⊂ subseteq:⊆ forall:∀ exists:∃ neg:¬ land:∧ lor:∨
    to:→ rightarrow:→ mapsto:→ Rightarrow:⇒ implies:⇒ iff:⇔ leftarrow:← sum:∑ prod:∏ int:∫ partial:∂
    nabla:∇ emptyset:∅ therefore:∴ because:∵ oplus:⊕ otimes:⊗ perp:⊥ parallel:∥ angle:∠ sqrt:√ circ:∘
    ldots:… dots:… cdots:… mid:| lt:< gt:>""")
)
_NAMES = words("sin cos tan log ln exp max min det gcd lim arcsin arccos arctan sinh cosh tanh sup inf Pr")
_SILENT = words("""left right big Big bigl bigr Bigl Bigr displaystyle limits quad qquad item noindent
    centering text textbf textit texttt textsc textrm emph underline mathrm mathbf mathbb mathcal mathit
    mathsf operatorname boldsymbol boxed""")
_ONE_COMMAND = rf"\\({'|'.join(sorted({*_SIGNS, *_NAMES, *_SILENT}))})(?![A-Za-z])"
_HEADING = r"\\(?:chapter|(?:sub){0,2}section|paragraph|title|caption)\*?"
_ONE_TOLD = (
    r"\\(?:vec|hat|bar|tilde|d?dot|overline|wide(?:hat|tilde))(?=[\s{\\])"
    r"|\\(?:cite[pt]?|(?:eq|auto)?ref|label|begin|end|includegraphics|usepackage|documentclass|[vh]space)\*?"
    r"(?:\[[^\[\]\n]{0,80}\])?\{[^{}\n]{0,200}\}"
)
_COMMAND, _TOLD = re.compile(_ONE_COMMAND), re.compile(_ONE_TOLD)
_INLINE = r"(?<!['\"/\w])\\\(.{1,200}?\\\)"  # \( x \), not of a pattern to search for
_LATEX = re.compile(rf"{_ONE_COMMAND}|{_ONE_TOLD}|(?:\\[dt]?frac(?=[\d{{])|{_HEADING}(?=\{{))|{_INLINE}")
_WINDOWS = re.compile(r"\b[A-Za-z]:\\\w")
_DEGREES = re.compile(r"\^\{?\\circ(?![A-Za-z])\}?")
_ESCAPED = re.compile(r"\\([^\w\s*`>|]|\s)|(?<=[.\w])(~)(?=[\\\w])")
_INNER = r"\{([^{}]{0,300})\}"
_BRACED = re.compile(
    rf"(?P<frac>\\[dt]?frac){_INNER}{_INNER}|(?P<heading>{_HEADING}){_INNER}"
    rf"|(?P<root>√{FILL}{{4}}){_INNER}|(?P<script>[_^]){_INNER}|(?<!frac)(?<!\}}){_INNER}"
)
_BARE = re.compile(r"(\\[dt]?frac)(?:\{(\w{1,9})\}|(\d))(?:\{(\w{1,9})\}|(\d))")  # "\\frac12", "\\frac{1}2"
_SIMPLE = re.compile(r"[^\s+\u2212-]{0,4}")
_DEPTH = 5


def without_latex(line: str, at: int, left_out: list[LeftOut]) -> str:
    """A line that begins at `at`. What has no words (\\cite, \\vec) is told."""
    if not _LATEX.search(line) or _WINDOWS.search(line):
        return line

    written = line

    def told(match: re.Match) -> str:
        command = written[match.start() : match.end()]
        left_out.append(LeftOut(command[:40], at + match.start(), command.split("{")[0]))
        return _padded("", match)

    line = _ESCAPED.sub(lambda match: _padded(_escaped(match[1]), match), line)
    line = _DEGREES.sub(lambda match: _padded("°", match), _TOLD.sub(told, line))
    line = _COMMAND.sub(lambda match: _padded(_command(match[1]), match), line)
    line = _BARE.sub(_bare_fraction, line)
    for _ in range(_DEPTH):  # the inmost braces first
        line, count = _BRACED.subn(_without_braces, line)
        if not count:
            break
    return line


def _padded(said: str, match: re.Match) -> str:
    return said.ljust(len(match[0]), FILL)


def _bare_fraction(match: re.Match) -> str:
    command, *parts = filter(None, match.groups())
    return _padded(f" {'/'.join(parts)}".rjust(len(command) + len("".join(parts)) + 1) + " ", match)


def _escaped(sign: str | None) -> str:
    return "," if sign == "\\" else sign if sign and sign in "%&$#_{}" else " "


def _command(name: str) -> str:
    return f" {name}" if name in _NAMES else _SIGNS.get(name, "")


def _without_braces(match: re.Match) -> str:
    parts = [group for group in match.groups() if group is not None]
    behind = " " if match.string[match.end() : match.end() + 1].isalnum() else FILL
    if match["frac"]:
        command, top, below = parts
        are_numbers = top.isdecimal() and below.isdecimal()
        over = f"/{FILL}" if are_numbers else f"⧸{FILL}" if _SIMPLE.fullmatch(top) else ",⧸"
        return f" {FILL * len(command)}{top}{over}{below}{behind}"
    if match["heading"]:
        return FILL * (len(parts[0]) + 1) + parts[1] + "\u2029"
    if match["root"] and len(parts[1]) > 1:
        return f"{parts[0]}({parts[1]})"
    if match["script"] == "^":
        return f"^({parts[1]})"
    return f"{parts[0] if len(parts) > 1 else ''}{FILL}{parts[-1]}{behind}"
