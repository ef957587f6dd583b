"""What a corpus of recordings holds and what is wrong with it: in print, JSON, Markdown and a plot."""

import io
import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np

from melforge.common.errors import InputError
from melforge.common.files import write_files
from melforge.common.training.corpus.dataset import HOP, RATE
from melforge.common.training.corpus.defects import KINDS, LONG_FRAMES, LONGEST, Defect, Line

REPORT = "report.json"
NOBODY = "(one)"  # a single speaker's name
HEADINGS = ("speaker", "lines", "used", "minutes", "pitch", "5-95 %", "phones/s", "level", "noise")
STEPS = {"read": "reading, measuring, resampling", "text": "phonemes", "align": "alignment", "pitch": "pitch"}
NEXT_STEPS = (
    ("melforge voice train {corpus} -o RUN", "10 minutes for a model, or --minutes; best on a GPU"),
    ("melforge voice make NAME --run RUN", "under a minute"),
    ("melforge voice check NAME --corpus {corpus}", "seconds for each speaker"),
)
Report = dict[str, Any]


def make_report(
    lines: Sequence[Line], defects: Sequence[Defect], used: Sequence[Line], seconds: float, made: int
) -> Report:
    """The content of report.json. `seconds` were taken for the `made` of its lines that were new."""
    names = {line.name for line in used}
    by_speaker = defaultdict(list)
    for line in lines:
        by_speaker[line.speaker].append(line)
    took = {step: sum(line.took.get(step, 0.0) for line in lines) for step in STEPS}
    return {
        "lines": len(lines),
        "used": len(used),
        "minutes": round(sum(map(_minutes, used)), 2),
        "denoised": _denoised(used),
        "too_short": "",  # why nothing is trained on it
        "new": made,
        "seconds": round(seconds, 1),
        "cpu_seconds": {step: round(value, 2) for step, value in took.items()},
        "speakers": [_about(name, own, names) for name, own in sorted(by_speaker.items())],
        "defects": [asdict(one) for one in defects],
        "recordings": [_entry(line, line.name in names) for line in lines],
    }


def _minutes(line: Line) -> float:
    return line.measures.speech / 60 if line.measures else 0.0


def _denoised(used: Sequence[Line]) -> dict[str, Any] | None:
    """Of how many lines steady noise was taken out, and its medians in dB as recorded and now."""
    found = [(one.measures.noise, one.noise) for one in used if one.measures and one.noise is not None]
    before, after = (_median(noises, 1) for noises in zip(*found, strict=True)) if found else (None, None)
    return {"lines": len(found), "before": before, "after": after} if found else None


def _about(speaker: str, lines: Sequence[Line], names: set[str]) -> dict[str, Any]:
    used = [line for line in lines if line.name in names]
    found = [line.measures for line in used if line.measures]
    pitch = np.array([value for line in used for value in line.pitch if value > 0] or [0.0])
    return {
        "speaker": speaker,
        "lines": len(lines),
        "used": len(used),
        "minutes": round(sum(map(_minutes, used)), 2),
        "pitch": round(float(np.median(pitch)), 1),
        "pitch_low": round(float(np.percentile(pitch, 5)), 1),
        "pitch_high": round(float(np.percentile(pitch, 95)), 1),
        "pace": _median([line.pace for line in used], 2),
        "level": _median([one.level for one in found], 1),
        "noise": _median([one.noise for one in found], 1),
    }


def _median(values: Sequence[float], digits: int) -> float | None:
    return round(float(np.median(values)), digits) if values else None


def _entry(line: Line, used: bool) -> dict[str, Any]:
    measures = {} if line.measures is None else asdict(line.measures) | {"speech": line.measures.speech}
    fit = {} if line.fit is None else {"score": line.fit.score, "worst": line.fit.worst}
    about = {"pitch": line.mean_pitch, "pace": line.pace, "wer": (line.heard or {}).get("wer")}
    rounded = {k: round(v, 5) if isinstance(v, float) else v for k, v in (measures | fit | about).items()}
    return {"name": line.name, "source": line.source, "speaker": line.speaker, "used": used, **rounded}


def read_report(corpus: Path) -> Report:
    """Of a corpus that `melforge voice prepare` made."""
    try:
        return json.loads((corpus / REPORT).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{corpus / REPORT} not found: melforge voice prepare FOLDER -o {quote(str(corpus))} writes it"
        ) from None
    except ValueError:
        raise InputError(f"{corpus / REPORT} is damaged: run melforge voice prepare again") from None


def save_report(corpus: Path, report: Report) -> None:
    """report.json, report.md and, where matplotlib is installed, report.png."""
    plot = draw(report)
    files = {
        REPORT: json.dumps(report, indent=1, ensure_ascii=False).encode(),
        "report.md": as_markdown(report, bool(plot)).encode(),
        "report.png": plot,
    }
    write_files({corpus / name: content for name, content in files.items() if content})


# In words


def rows(report: Report) -> list[list[str]]:
    """A row of `HEADINGS` for each speaker."""
    return [
        [
            one["speaker"] or NOBODY,
            str(one["lines"]),
            str(one["used"]),
            f"{one['minutes']:.1f}",
            f"{one['pitch']:.0f} Hz",
            f"{one['pitch_low']:.0f}-{one['pitch_high']:.0f}",
            *("-" if one[key] is None else f"{one[key]:.1f}" for key in ("pace", "level", "noise")),
        ]
        for one in report["speakers"]
    ]


def summary(report: Report) -> str:
    left_out = report["lines"] - report["used"]
    speakers = sum(one["used"] > 0 for one in report["speakers"])
    parts = [
        f"{report['used']} of {report['lines']} lines are used: {report['minutes']:.1f} minutes of speech"
    ]
    parts += [f"{speakers} speakers"] if speakers > 1 else []
    parts += [f"{left_out} left out"] if left_out else []
    if noise := report.get("denoised"):  # reports of earlier versions have none
        change = f"from {noise['before']:.0f} to {noise['after']:.0f} dB of full scale"
        parts += [f"steady noise of {noise['lines']} was lowered {change}"]
    parts += [f"{report['new']} new lines took {report['seconds']:.0f} s"]
    return ", ".join(parts)


def next_steps(report: Report, corpus: Path | str) -> list[tuple[str, str]]:
    """Commands, each with what it takes; of a corpus on which nothing is trained, what to do instead."""
    if report["too_short"]:
        return [("", f"record more, and prepare it again: there are {report['too_short']}")]
    return [(words.format(corpus=quote(str(corpus))), about) for words, about in NEXT_STEPS]


def by_outcome(defects: Sequence[dict[str, Any]]) -> list[tuple[str, list[dict[str, Any]]]]:
    """What lines that are left out have, also what alone would not leave them out, and what others have."""
    gone = {one["name"] for one in defects if one["left_out"]}
    return [
        ("left out:", [one for one in defects if one["name"] in gone]),
        ("used, but look at them:", [one for one in defects if one["name"] not in gone]),
    ]


def as_markdown(report: Report, has_plot: bool) -> str:
    out = ["# Corpus report", "", f"{summary(report)}.", ""]
    out += ["| " + " | ".join(HEADINGS) + " |", "|" + "---|" * len(HEADINGS)]
    out += ["| " + " | ".join(row) + " |" for row in rows(report)]
    out += [
        "",
        "Pitch is the median of all phones; level and noise are in dB of full scale, as recorded.",
        "",
    ]
    out += ["![lengths, levels, pitch, pace](report.png)", ""] if has_plot else []
    for title, some in by_outcome(report["defects"]):
        out += [f"## {title.rstrip(':').capitalize()}", ""] if some else []
        for kind, (about, may_keep) in KINDS.items():
            own = [one for one in some if one["kind"] == kind]
            if own:
                may_keep = may_keep and any(one["left_out"] for one in own)
                force = f" (`--keep {kind}` uses them)" if may_keep else ""
                out += [f"### {kind}: {about}{force}", ""]
                out += [f"- `{one['source']}`: {one['sentence']}" for one in own] + [""]
    steps = (
        f"- `{words}`: {about}" if words else f"- {about}" for words, about in next_steps(report, "CORPUS")
    )
    out += ["## Next", "", *steps, "", "## Time", "", "| step | seconds, of all processes |", "|---|---|"]
    out += [f"| {STEPS[step]} | {seconds:.1f} |" for step, seconds in report["cpu_seconds"].items()]
    return "\n".join(out) + "\n"


# Drawn


def draw(report: Report) -> bytes | None:
    """A PNG of lengths, levels, pitch and pace, a colour for each speaker; None without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        return None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    heard = [one for one in report["recordings"] if one.get("speech")]
    speakers = [one["speaker"] for one in report["speakers"]]
    colours = {speaker: f"C{number % 10}" for number, speaker in enumerate(speakers)}
    if not heard:
        return None

    def values(key: str) -> tuple[list[list[float]], list[str]]:
        own = [[one[key] for one in heard if one["speaker"] == who and one.get(key)] for who in speakers]
        return own, [colours[who] for who in speakers]

    figure, axes = pyplot.subplots(2, 2, figsize=(11, 7), layout="constrained")
    (lengths, levels), (pitch, pace) = axes
    panels = ((lengths, "speech", "seconds of speech"), (pitch, "pitch", "median pitch of a line in Hz"))
    for axis, key, label in (*panels, (pace, "pace", "phones a second")):
        found, shades = values(key)
        axis.hist(found, bins=30, stacked=True, color=shades, label=[who or "lines" for who in speakers])
        axis.set(xlabel=label, ylabel="lines")
    for limit in (LONG_FRAMES * HOP / RATE, LONGEST):
        if limit < 1.2 * lengths.get_xlim()[1]:
            lengths.axvline(limit, color="0.5", linestyle=":")
    for key, marker in (("level", "o"), ("noise", "x")):
        for who in speakers:
            own = [one for one in heard if one["speaker"] == who]
            peaks = [20 * np.log10(max(one["peak"], 1e-6)) for one in own]
            levels.scatter(peaks, [one[key] for one in own], s=9, marker=marker, color=colours[who])
    levels.set(xlabel="peak in dB of full scale", ylabel="level (o) and noise (x) in dB")
    if len(speakers) > 1:
        lengths.legend(fontsize="small")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=100)
    pyplot.close(figure)
    return buffer.getvalue()
