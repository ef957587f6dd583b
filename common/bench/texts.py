"""New texts, each spoken once through `TextToSpeech`: whole, as a stream of chunks, or in batches."""

import functools
import itertools
import time
from collections.abc import Callable, Sequence

from melforge.common.bench.report import Row
from melforge.common.bench.timer import summary, timed, wait_for
from melforge.common.bench.workload import SPEAK_MANY, STREAM, Texts
from melforge.common.runner import TextToSpeech

PASSES, LONGEST_PASSES = 50, 3.0  # over texts that were spoken before, and the seconds that these may take


def speak(tts: TextToSpeech, texts: Sequence[str], call: str, batch: int) -> tuple[float, float]:
    """By one call: seconds of audio, and seconds until the first samples, of a stream its first chunk."""
    start, first, samples = time.perf_counter(), 0.0, 0
    if call == SPEAK_MANY:
        samples = sum(len(audio.samples) for audio in tts.speak_many(texts, batch_size=batch))
    elif call == STREAM:
        for chunk in tts.stream(texts[0]):
            first = first or time.perf_counter() - start
            samples += len(chunk)
    else:
        samples = len(tts.speak(texts[0]).samples)
    return samples / tts.sampling_rate, first or time.perf_counter() - start


def median_call(tts: TextToSpeech, texts: Texts, batch: int) -> Callable[[], object]:
    """One call, for a profiler: the text of median length, or a batch of the lengths around it."""
    known = sorted(texts.measured, key=len)
    start = max(0, (len(known) - batch) // 2)
    return lambda: speak(tts, known[start : start + batch], texts.call, batch)


def measure_texts(tts: TextToSpeech, texts: Texts, batch: int, device: str) -> Row:
    """The file's texts, in its order, after a warm-up with others of its texts."""

    def time_call(some: Sequence[str]) -> tuple[float, float, float]:
        """Seconds of the call, seconds of audio, seconds until the first samples."""
        wait_for(device)
        start = time.perf_counter()
        audio, first = speak(tts, some, texts.call, batch)
        return time.perf_counter() - start, audio, first

    tts.choose_batch_size(batch)  # one that the model does not take is refused before anything is spoken
    begun, seconds, waiting = time.perf_counter(), [], iter(texts.warm_up)
    while some := list(itertools.islice(waiting, batch)):
        if seconds and time.perf_counter() - begun >= texts.longest_warm_up:
            break
        seconds.append(time_call(some)[0])
    row: Row = {"first_s": seconds[0], "warm_up_s": time.perf_counter() - begun}
    row["warm_up_texts"] = min(len(seconds) * batch, len(texts.warm_up))
    count, letters = len(texts.measured), [len(text) for text in texts.measured]
    row |= {
        "runs": count,
        "letters": {"mean": sum(letters) / count, "min": min(letters), "max": max(letters)},
    }
    if texts.call != SPEAK_MANY:
        taken, audio, firsts = zip(*(time_call([text]) for text in texts.measured), strict=True)
        row |= {"audio_s": sum(audio) / count, "times_real_time": sum(audio) / sum(taken)}
        row["latency"] = summary(taken)
        return row | ({"first_audio": summary(firsts)} if texts.call == STREAM else {})
    # All by one call, first as new ones, then again and again where that is short.
    taken, audio, _ = time_call(texts.measured)
    row |= {"utterances_per_s": count / taken, "times_real_time": audio / taken, "audio_s": audio / count}
    if taken < LONGEST_PASSES:
        call = functools.partial(speak, tts, texts.measured, texts.call, batch)
        again = timed(call, PASSES, device, longest=LONGEST_PASSES, least=1)
        row["again_per_s"] = count / summary(again)["p50"]
    return row
