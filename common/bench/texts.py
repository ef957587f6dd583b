"""Rows of new texts, spoken once through `TextToSpeech`: whole, as a stream of chunks, or in batches."""

import itertools
import time
from collections.abc import Callable, Sequence

from melforge.common.bench.machine import busy_share
from melforge.common.bench.table import Row
from melforge.common.bench.timer import summary, timed, wait_for
from melforge.common.bench.workload import SPEAK_MANY, STREAM, Workload
from melforge.common.runner import TextToSpeech

PASSES, LONGEST_PASSES = 50, 3.0  # over texts that were spoken before, and the seconds that these may take


class Speaker:
    """Speaks texts as the workload says, up to `batch` of them a call."""

    def __init__(self, workload: Workload, tts: TextToSpeech, batch: int):
        assert workload.texts is not None
        self.texts, self.tts, self.batch = workload.texts, tts, batch
        self._call, self._device = workload.call, workload.clock_device

    def speak(self, texts: Sequence[str]) -> tuple[float, float]:
        """Seconds of audio, and the seconds until the first samples: of a stream its first chunk."""
        start, first, samples = time.perf_counter(), 0.0, 0
        if self._call == SPEAK_MANY:
            spoken = self.tts.speak_many(texts, batch_size=self.batch)
            samples = sum(len(audio.samples) for audio in spoken)
        elif self._call == STREAM:
            for chunk in self.tts.stream(texts[0]):
                first = first or time.perf_counter() - start
                samples += len(chunk)
        else:
            samples = len(self.tts.speak(texts[0]).samples)
        return samples / self.tts.sampling_rate, first or time.perf_counter() - start

    def time(self, texts: Sequence[str]) -> tuple[float, float, float]:
        """Seconds of the call, seconds of audio, seconds until the first samples."""
        wait_for(self._device)
        start = time.perf_counter()
        audio, first = self.speak(texts)
        return time.perf_counter() - start, audio, first

    def warm_up(self, longest: float) -> Row:
        """Speaks the warm-up's texts while the time lasts. The first call is that of the process."""
        begun, seconds, count = time.perf_counter(), [], 0
        texts = iter(self.texts.warm_up)
        while batch := list(itertools.islice(texts, self.batch)):
            if seconds and time.perf_counter() - begun >= longest:
                break
            seconds.append(self.time(batch)[0])
            count += len(batch)
        return {"first_s": seconds[0], "warm_up_texts": count, "warm_up_s": time.perf_counter() - begun}

    @property
    def profiled(self) -> Callable[[], object]:
        """One call: the text of median length, or a batch of the lengths around it."""
        texts = sorted(self.texts.measured, key=len)
        start = max(0, (len(texts) - self.batch) // 2)
        return lambda: self.speak(texts[start : start + self.batch])


def measure_texts(workload: Workload, speaker: Speaker) -> Row:
    """The file's texts, in its order, after a warm-up with others of its texts."""
    # A batch size that the model does not take is refused before anything is spoken.
    speaker.tts.choose_batch_size(speaker.batch)
    row = speaker.warm_up(workload.text_warm_up)
    texts = speaker.texts.measured
    row |= {"runs": len(texts), "letters": speaker.texts.letters}
    if workload.call == SPEAK_MANY:
        return row | measure_throughput(speaker, workload.clock_device)
    seconds, audio, firsts = zip(*(speaker.time([text]) for text in texts), strict=True)
    row |= {"audio_s": sum(audio) / len(texts), "rtf": sum(audio) / sum(seconds)}
    row["latency"] = extremes(seconds)
    return row | ({"first_audio": extremes(firsts)} if workload.call == STREAM else {})


def measure_throughput(speaker: Speaker, device: str) -> Row:
    """All texts by one call, first as new ones, then again and again where that is short."""
    texts = speaker.texts.measured
    with busy_share(device) as busy:
        seconds, audio, _ = speaker.time(texts)
    row: Row = {"utterances_per_s": len(texts) / seconds, "rtf": audio / seconds, "gpu_busy": busy()}
    if seconds < LONGEST_PASSES:
        with busy_share(device) as busy:
            again = timed(lambda: speaker.speak(texts), PASSES, device, longest=LONGEST_PASSES, least=1)
        row |= {"again_per_s": len(texts) / summary(again)["p50"], "gpu_busy": busy()}
    return row | {"audio_s": audio / len(texts)}


def extremes(seconds: Sequence[float]) -> dict[str, float]:
    return summary(seconds) | {"max": max(seconds)}
