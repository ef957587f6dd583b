"""What pasted text has besides words: entities, Markdown, LaTeX, marks of quoted mails, blocks of HTML.

Each becomes what it stands for, padded to its length: every place in the text stays what it was.
"""

from __future__ import annotations

import html
import re

from melforge.common.text.english.latex import without_latex
from melforge.common.text.english.reading.cursor import FILL, LeftOut

_LAID_OUT = re.compile(r"[&<>\[`~#=_*]|---|\$[A-Za-z\\]|\\[A-Za-z(]")  # most texts have none of these
_INLINE = re.compile(
    r"&(?:amp;)*(?P<entity>#\d{1,7};?|#[xX][\da-fA-F]{1,6};?|[A-Za-z][A-Za-z\d]{1,30};)"
    r"|(?:\[(?=!))?!?\[(?P<link>[^\[\]]{0,200})\](?=\()"
    r"\((?:<[^<>\n]{0,500}>|[^()<>\s]{0,500}(?:\([^()\s]{0,100}\)[^()\s]{0,100})?)(?:\s\"[^\"\n]{0,200}\")?\)"
    r"(?:\]\([^()<>\s]{0,500}\))?"  # of an image that is a link
    r"|(?<![\w~=])(?:~~(?=[^\s~])(?P<struck>[^~\n]{1,300})~~|==(?=[^\s=])(?P<marked>[^=\n]{1,300})==)(?![\w~=])"
    r"|</?(?P<block>p|br|hr|div|h[1-6]|li|[uod]l|d[td]|t[rdh]|table|section|article|blockquote|pre|title)"
    r"(?![\w-])[^<>]{0,200}>"
    r"|(?<![\w$])\$\$?(?=[A-Za-z\\]|\d[^$\n]{0,60}[\\^=])(?P<formula>[^$\n]{1,200})(?<!\s)\$\$?(?![\w$])"
    r"|(?P<escape>\\)(?=[*_#~`>|\[\]])"
    r"|(?<=[a-z])(?P<apostrophe>`)(?=(?:s|t|d|m|re|ll|ve)\b)",
    re.IGNORECASE,
)
_LINKED = re.compile(r"\]\(<?((?:[^<>()\s]|\([^()\s]{0,100}\))+)")  # the end of a link, and its address
_OPERATOR = re.compile(r"[=^_+\\<>-]|^[A-Za-z]{1,5}$")  # or letters alone
_FENCE = re.compile(r"[ \t]{0,3}(?:`{3,}|~{3,})[ \t]*([\w+#.-]*)[^`\n]{0,80}$")
_RULE = re.compile(r"[ \t]*([=*~#-])(?:\1|[ \t]\1){2,200}[ \t]*$")  # "=====", "* * *"
_HEADING = re.compile(r"[ \t]{0,3}#{1,6}[ \t]+(?=\S)(?!\d+\s*$|of\s)")
_TIMED = r"(?:\d{2,4}:)?\d\d:\d\d[.,]\d{3}"
_CUE = re.compile(rf"{_TIMED}[ \t]+-->[ \t]+{_TIMED}(?![^\s])")  # of subtitles
_CLOSING = re.compile(r"(?<=\S)[ \t]+#+[ \t]*$")  # "## Title ##"
_QUOTE = re.compile(rf"(?:[ \t]*>(?!=){FILL}*)+[ \t]*")
_QUOTED_LINE = re.compile(r"^[ \t]*(?:>|&gt;)", re.MULTILINE)
_PROSE = ("", "text", "txt", "plain", "plaintext", "md", "markdown", "quote")  # fences of these are read
# What a page of HTML holds besides words, and where each ends.
_UNREAD = re.compile(r"<(?:!--|!doctype\b|script\b|style\b)", re.IGNORECASE)
_ENDS = {
    "<!--": re.compile("-->"),
    "<!doctype": re.compile(">"),
    "<script": re.compile(r"</script\s*>", re.IGNORECASE),
    "<style": re.compile(r"</style\s*>", re.IGNORECASE),
}
_OF_CODE = re.compile("[{}();=]")  # "<style> and </style>" are words about tags
_CELLS = ("td", "th", "dt")
_LINES = ("br", "li", "dd", "tr")
_LINE, _PARAGRAPH = "\u2028", "\u2029"


def plain_text(text: str, reads_addresses: bool = False) -> tuple[str, list[LeftOut]]:
    """The text without its layout, as long as it was, and what of it is not spoken, in order.

    Marks of emphasis, headings and quotes are silent. Addresses of links, tags of blocks (which are pauses),
    comments, scripts and styles of pages, and fenced code that names its language are told; with
    `reads_addresses` those of links are kept.
    """
    if not _LAID_OUT.search(text):
        return text, []
    text, unread = _without_code(text)
    lines: list[str] = []
    left_out: list[LeftOut] = []
    at = code_at = 0
    code: int | None = None  # which line begins the code that this one is in
    is_reply = len(_QUOTED_LINE.findall(text)) > 1
    for line in text.splitlines(keepends=True):
        words = line.rstrip()
        if fence := _FENCE.match(words):
            if code is not None and not fence[1]:
                while left_out and left_out[-1].position >= code_at:  # it is told as a whole
                    left_out.pop()
                left_out.append(LeftOut(text[code_at:at].split("\n")[0].strip(), code_at, "```"))
                lines[code:] = [_blank(one) for one in lines[code:]]
                code = None
            elif code is None and fence[1].lower() not in _PROSE:
                code, code_at = len(lines), at
            lines.append(_blank(line))
        elif _CUE.match(words):
            lines[-1:] = [_blank(one) if one.strip().isdecimal() else one for one in lines[-1:]]
            left_out.append(LeftOut(words[:40], at, "-->"))
            lines.append(_blank(line))
        elif _RULE.match(words):
            lines.append(_blank(line[:-1]) + _PARAGRAPH)
        else:
            lines.append(_plain_line(line, at, left_out, is_reply, reads_addresses))
        at += len(line)
    return "".join(lines), sorted([*unread, *left_out], key=lambda one: one.position)


def _without_code(text: str) -> tuple[str, list[LeftOut]]:
    """The text with blanks for its comments, scripts and styles; what has no end stays."""
    parts: list[str] = []
    left_out: list[LeftOut] = []
    at, endless = 0, set[str]()
    for match in _UNREAD.finditer(text):
        kind = match[0].lower()
        if match.start() < at or kind in endless:
            continue
        if (end := _ENDS[kind].search(text, match.end())) is None:
            endless.add(kind)
        elif kind.startswith("<!") or _OF_CODE.search(text, match.end(), end.start()):
            opening = text[match.start() : text.index(">", match.end() - 1, end.end()) + 1]
            left_out.append(LeftOut(opening[:40], match.start(), kind))
            hidden = text[match.start() : end.end()]
            parts += text[at : match.start()], "\n".join(" " * len(line) for line in hidden.split("\n"))
            at = end.end()
    return "".join([*parts, text[at:]]), left_out


def _blank(line: str) -> str:
    words = line.rstrip()
    return " " * len(words) + line[len(words) :]


def _plain_line(line: str, at: int, left_out: list[LeftOut], is_reply: bool, reads_addresses: bool) -> str:
    """A line that begins at `at`, as `plain_text` gives it."""

    def plain(match: re.Match) -> str:
        written, kind = match[0], match.lastgroup or ""
        if kind == "entity":
            return (html.unescape(f"&{match[kind]}") or "\ufffd").ljust(len(written), FILL)
        if kind in ("apostrophe", "escape"):
            return "'" if kind == "apostrophe" else FILL
        if kind == "formula" and not _OPERATOR.search(match[kind]):  # "$HOME or $PATH"
            return written
        if kind == "block":
            left_out.append(LeftOut(written[:40], at + match.start(), written[:40]))
            tag = match[kind].lower()
            mark = "," if tag in _CELLS else _LINE if tag in _LINES else _PARAGRAPH
            return mark.ljust(len(written))
        inner = _INLINE.sub(lambda m: plain(m) if m.lastgroup == "entity" else m[0], match[kind])
        start, end = match.start(kind) - match.start(), match.end(kind) - match.start()
        if kind == "link" and reads_addresses and (address := _LINKED.match(written, end)):
            rest = len(written) - address.end(1)
            return f"{FILL * start}{inner},{' ' * (address.start(1) - end - 1)}{address[1]}{FILL * rest}"
        if kind == "link" and len(written) - end > 3:
            left_out.append(LeftOut(written[end + 1 :][:40], at + match.end(kind) + 1, "]("))
        return FILL * start + inner + FILL * (len(written) - end)

    line = _INLINE.sub(plain, line)
    if "\\" in line:
        line = without_latex(line, at, left_out)
    if quote := _QUOTE.match(line):
        is_quote = is_reply or not line[quote.end() : quote.end() + 1].isdecimal()  # "> 5 kg"
        line = " " * quote.end() + line[quote.end() :] if is_quote else line
    if heading := _HEADING.match(line):
        words = line.rstrip("\r\n")
        title = _CLOSING.sub("", words[heading.end() :])
        line = (" " * heading.end() + title).ljust(len(words)) + _PARAGRAPH * (len(line) - len(words))
    return line
