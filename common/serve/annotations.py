"""What is sent along with an utterance's audio: its words with their times, and its alignment."""

from __future__ import annotations

import asyncio
import base64
from itertools import islice
from typing import Any

import numpy as np

from melforge.common.runner import Stream
from melforge.common.serve.service import Speaking
from melforge.common.synthesis.timestamps import (
    as_rows,
    bookmark_rows,
    bookmarks,
    pieces_as_written,
    utterance_timestamps,
)


class Annotations:
    """The annotations that a request asks for, of one text while it is spoken."""

    def __init__(self, spoken: Speaking) -> None:
        self.spoken, self._sent = spoken, 0

    async def since(self) -> list[dict[str, Any]]:
        """The annotations of utterances begun since the last call, each with its `type`."""
        wanted, first = self.spoken.wanted, self._sent
        self._sent = len(self.spoken.stream.durations)
        if first == self._sent or not (wanted.timestamps or wanted.alignment):
            return []
        return await asyncio.to_thread(self._rows, first, self._sent)

    def _rows(self, first: int, end: int) -> list[dict[str, Any]]:
        wanted, stream = self.spoken.wanted, self.spoken.stream
        words = utterance_timestamps(stream, first, end) if wanted.timestamps else []
        alignments = utterance_alignments(stream, first, end) if wanted.alignment else []
        rows: list[dict[str, Any]] = []
        for number in range(end - first):
            if words:
                written = pieces_as_written(stream.utterances[first + number].text, words[number])
                row = {"type": "timestamps", "words": as_rows(words[number]), "written": written}
                if marks := bookmarks(stream, first + number, first + number + 1):
                    row["marks"] = bookmark_rows(marks)
                rows.append(row)
            if alignments:
                rows.append({"type": "alignment", **alignments[number]})
        return rows


def utterance_alignments(stream: Stream, first: int = 0, end: int | None = None) -> list[dict[str, Any]]:
    """For each utterance the seconds that its symbols take, what the decoder attended to, and its mel.

    `attention` is None where the acoustic model has none, else its weights times 255, uint8 [steps, symbols]
    in base64; the steps share the utterance's time evenly. `mel` has its `mel_levels` so.
    """
    assert stream.alignments is not None  # `Service.speak` set a list
    made = zip(
        stream.utterances, stream.starts, stream.durations, stream.alignments, stream.mels, strict=False
    )
    return [
        {
            "start": round(start, 4),
            "symbols": [symbol.removeprefix("@") for symbol in utterance.symbols],
            "seconds": [round(seconds, 4) for seconds in (durations * stream.frame_seconds).tolist()],
            "attention": None if alignment is None else attention_of(alignment),
            "mel": {"frames": len(mel), "levels": in_base64(mel)},
        }
        for utterance, start, durations, alignment, mel in islice(made, first, end)
    ]


def attention_of(alignment: np.ndarray) -> dict[str, Any]:
    """alignment float32 [steps, symbols], whose rows sum to 1, for JSON."""
    return {"steps": len(alignment), "weights": in_base64(np.rint(255 * alignment).astype(np.uint8))}


def in_base64(array: np.ndarray) -> str:
    return base64.b64encode(array.tobytes()).decode()
