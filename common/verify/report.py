"""The results of a comparison: as a table, in full, and drawn."""

import io
from typing import Any

import numpy as np

from melforge.common.errors import counted
from melforge.common.synthesis.chunk_check import CHUNK_TOLERANCE
from melforge.common.verify.compare import Comparison, mean
from melforge.common.verify.verification import RecogniserVerification, SpeechVerification, Verification

HEADINGS = (
    *("tensor", "shape", "max", "mean", "SNR dB", "relative", "allowed", "of largest", "allowed", "worst at"),
    "",
)
LEVELS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)  # of which --full counts the errors above


def row_of(one: Comparison) -> tuple[str, ...]:
    name = f"{one.stage}: {one.name}" if one.layer else f"{one.stage} -> {one.name}"
    where = ",".join(map(str, one.at)) + (f" (call {one.call} of {one.calls})" if one.calls > 1 else "")
    verdict = "ok" if one.ok else one.reason or "OUT"
    return (
        name,
        "x".join(map(str, one.shape)) or "1",
        f"{one.max_error:.1e}",
        f"{one.mean_error:.1e}",
        f"{one.snr:.0f}",
        f"{one.relative:.1e}",
        f"{one.tolerance:.1e}" if one.floor else "equal",
        f"{one.share:.1e}",
        f"{one.share_tolerance:.1e}" if one.floor else "equal",
        where,
        verdict,
    )


def conclusion(found: Verification) -> list[str]:
    """The summary, in sentences."""
    compared, first = found.comparisons, found.first_wrong
    lines = []
    if isinstance(found, SpeechVerification):
        lines += spoken(found)
    elif isinstance(found, RecogniserVerification):
        lines.append(
            f"{len(found.texts)} pieces of audio heard by both; {found.other_texts} texts differ; largest "
            f"difference of likely log-probabilities {max(found.errors, default=0.0):.1e}"
        )
    if first is None:
        lines.append(within_tolerance(len(compared)) + ("" if found.ok else ", but not what is said above"))
    else:
        what = "layer" if first.layer else "output"
        why = first.reason or (
            f"its relative error is {first.relative:.1e} (tolerance {first.tolerance:.1e}), the largest "
            f"{first.share:.1e} of its largest value (tolerance {first.share_tolerance:.1e})"
        )
        lines.append(out_of_tolerance(sum(not one.ok for one in compared), len(compared)))
        lines.append(f"the first that went wrong: {what} {first.name} of {first.stage}: {why}")
    unseen = list(dict.fromkeys(name for setup in found.setups for name in setup.unseen))
    if unseen:
        layers = len(unseen) + sum(one.layer for one in compared)
        why = "" if first is None else ", being wired otherwise than the network, or fused"
        lines.append(
            f"{len(unseen)} of {counted(layers, 'layer')} were not found in the graphs in use{why}: "
            f"{', '.join(unseen)}"
        )
    return lines


def spoken(found: SpeechVerification) -> list[str]:
    """On the sentence, and on the vocoder's chunks."""
    speech = found.speech.report(found.contract)
    wanted, got = speech["frames"]
    snr = speech["audio_snr_db"]
    judged = " - OUT" if speech["judged"] else " - not judged: the model is autoregressive"
    lines = [
        f"the sentence on both: {wanted} and {got} mel frames; {speech['other_durations']} of "
        f"{speech['symbols']} durations differ; mean error of {speech['frames_compared']} aligned frames: "
        f"mels {speech['mel']:.1e}, mels of the audio {speech['audio_mel']:.1e} (natural logarithm; "
        f"tolerance {speech['tolerance']:g})"
        + (f"; SNR of the samples {snr:.1f} dB" if snr is not None else "")
        + ("" if speech["within"] else judged)
    ]
    if not speech["judged"]:
        within = (f"{level} for {frames}" for level, frames in speech["frames_within"].items())
        lines.append(f"from the first frame on, the mels stay within {', '.join(within)} frames")
    if found.chunk_error is not None:
        wrong = " - OUT: the vocoder's receptive field is longer than it says, so that streams click"
        lines.append(
            f"the mel in chunks and whole: the samples differ by up to {found.chunk_error:.1e} of the peak "
            f"(tolerance {CHUNK_TOLERANCE:g})" + ("" if found.chunks_ok else wrong)
        )
    return lines


def within_tolerance(tensors: int) -> str:
    return f"{'the tensor is' if tensors == 1 else f'all {tensors} tensors are'} within tolerance"


def out_of_tolerance(wrong: int, tensors: int) -> str:
    return f"{wrong} of {counted(tensors, 'tensor')} {'is' if wrong == 1 else 'are'} out of tolerance"


def full(one: Comparison, wanted: np.ndarray, got: np.ndarray) -> None:
    """Prints a pair of tensors, their difference, and how many elements have which error."""
    print(f"\n## {one.full_name} {list(wanted.shape)}, call {one.calls}")
    with np.printoptions(precision=5, edgeitems=3, threshold=1, linewidth=110):
        print(f"PyTorch:\n{wanted}\nother:\n{got}")
        if wanted.shape != got.shape:
            return
        difference = np.abs(got.astype(np.float64) - wanted.astype(np.float64))
        print(f"difference:\n{difference}")
    counts = [f"{int((difference > level).sum())} above {level:g}" for level in LEVELS]
    out = int((~(difference <= one.share_tolerance * one.largest)).sum())
    print(
        f"largest {difference.max(initial=0):.3e}, mean {mean(difference):.3e}; "
        f"of {difference.size} elements {', '.join(counts)}; {out} out of tolerance"
    )


def draw(found: SpeechVerification) -> bytes:
    """A PNG: each tensor's error on the way through the model, then both mels and their difference."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(4, 1, figsize=(11, 13), layout="constrained", height_ratios=(2, 1, 1, 1))
    _draw_errors(axes[0], found)
    ours, theirs = found.speech.reach
    mels = [("PyTorch", found.speech.wanted.mel[:, ours]), ("other", found.speech.got.mel[:, theirs])]
    for axis, (title, mel) in zip(axes[1:3], mels, strict=True):
        _image(axis, mel, f"mel, {title}", vmin=-11.5, vmax=1.0)
    _image(axes[3], found.speech.mel_error, "difference of the mels")
    axes[3].set_xlabel("aligned frames")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    pyplot.close(figure)
    return buffer.getvalue()


def _draw_errors(axis: Any, found: SpeechVerification) -> None:
    compared = [one for one in found.comparisons if one.floor]
    places = np.arange(len(compared))
    shares = np.array([one.relative for one in compared])
    shares = np.clip(np.nan_to_num(shares, posinf=10.0), 1e-9, 10.0)
    stages = list(dict.fromkeys(one.stage for one in compared))
    for number, stage in enumerate(stages):
        inside = np.array([one.stage == stage for one in compared])
        axis.semilogy(places[inside], shares[inside], ".-", color=f"C{number}", label=stage)
    axis.semilogy(places, [one.tolerance for one in compared], "--", color="0.4", label="tolerance")
    first = found.first_wrong
    if first in compared:
        place = compared.index(first)
        axis.annotate(first.name, (place, shares[place]), color="tab:red", rotation=30, va="bottom")
        axis.plot(place, shares[place], "o", color="tab:red", fillstyle="none")
    axis.set(ylabel="relative error", xlabel="tensors in the order of execution")
    axis.legend(fontsize=8)
    axis.grid(alpha=0.3)


def _image(axis: Any, values: np.ndarray, title: str, **limits: float) -> None:
    if values.size:
        image = axis.imshow(values, origin="lower", aspect="auto", interpolation="nearest", **limits)
        axis.figure.colorbar(image, ax=axis)
    axis.set(ylabel="band", title=title)
