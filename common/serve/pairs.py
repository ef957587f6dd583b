"""The pairs of models that a server offers: loaded when first asked for, and sharing their drivers."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, cast

from melforge.common.audio.contract import MelContract, require_same_contract
from melforge.common.config.deployment import Deployment
from melforge.common.config.lexicon import LexiconFile
from melforge.common.errors import InputError, unknown
from melforge.common.registry import get_model
from melforge.common.registry import names as model_names
from melforge.common.runner import TextToSpeech, known_controls, require_controls
from melforge.common.serve.large_pages import use_large_pages
from melforge.common.speech import Controls
from melforge.common.stages.choose import KINDS, deployment_of, parse_backends
from melforge.common.synthesis.acoustic import AcousticModel
from melforge.common.synthesis.chunks import ChunkSizes
from melforge.common.synthesis.driver import Driver
from melforge.common.synthesis.loading import make_driver, override, pick_device
from melforge.common.synthesis.places import usable_cores
from melforge.common.synthesis.vocoder import Vocoder
from melforge.common.text import Frontend
from melforge.common.weights.published import read_checkpoints
from melforge.common.weights.voices import ModelSource, Voice, list_voices, load_voice

# OpenAI's names of models and voices, on which clients insist. A model's means the first pair; a voice's the
# speaker beside it, or the first voice where there is no such speaker.
OPENAI_MODELS = ("tts-1", "tts-1-hd", "gpt-4o-mini-tts")
OPENAI_VOICES = {
    "alloy": "alloy",
    "ash": "michael",
    "ballad": "emma",
    "cedar": "daniel",
    "coral": "sarah",
    "echo": "echo",
    "fable": "fable",
    "marin": "isabella",
    "nova": "nova",
    "onyx": "onyx",
    "sage": "heart",
    "shimmer": "isabella",
    "verse": "daniel",
}
# Chunks on a CPU, where every seam computes the frames around it twice: long ones where nobody waits. With a
# first one of 29 frames or fewer some samples are rounded otherwise than in the whole.
CHUNKS = ChunkSizes(first=32, largest=288, growth=3, even=True, stretched=480)
# On a GPU's kernels, where each step costs time of the host: most sentences are three chunks.
KERNEL_CHUNKS = ChunkSizes(first=24, largest=768, growth=8, even=True)
FIRST_WORDS = "Ready to speak."


@dataclass(frozen=True)
class LoadOptions:
    """How models are loaded; names and values as in `TextToSpeech.load`. `warm_up`: see there."""

    voice: str | None = None
    checkpoints: Sequence[str] = ()
    backend: str = "onnx"
    device: str = "auto"
    threads: int | None = None
    decoder: str | None = None
    deployments: Mapping[str, Deployment] = field(default_factory=dict)
    overrides: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    warm_up: bool = False
    lexicon: str | None = None
    streams: int = 1  # whose chunks come into one batch, for the warm-up

    def with_threads(self) -> LoadOptions:
        """With one thread an engine, unless a number was given or one worker has all cores."""
        return replace(self, threads=1) if self.threads is None and self.shares_engines else self

    @cached_property
    def shares_engines(self) -> bool:
        """Whether all models run on engines that threads can share: ONNX Runtime's on a CPU."""
        on_onnx = {part.rpartition("=")[2].strip() for part in self.backend.split(",")} == {"onnx"}
        return on_onnx and (pick_device("onnx") if self.device == "auto" else self.device) == "cpu"

    def workers(self, processes: int = 1) -> int:
        """Threads that speak: one a core in all processes together where they can share engines, else one."""
        if not self.shares_engines:
            return 1
        return max(1, usable_cores() // processes)


@dataclass(frozen=True)
class Pair:
    """An acoustic model and a vocoder of one voice."""

    voice: str
    acoustic: str
    vocoder: str

    @property
    def name(self) -> str:
        return f"{self.acoustic}-{self.vocoder}"


class Pairs:
    """All pairs by name. `get` gives one that is ready to speak; it may be called from several threads.

    Engines that threads can share run side by side, others take turns. Drivers count as used when a pair with
    them is asked for; one that was unloaded lives on until the last text that it speaks ends.
    """

    def __init__(
        self,
        options: LoadOptions,
        offered: str | None = None,
        memory_limit: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.options, self._asked, self._limit, self._clock = options, offered, memory_limit, clock
        speaking = model_names(*KINDS)
        self._given = {source.model: source for source in read_checkpoints(options.checkpoints, speaking)}
        names = [options.voice] if options.voice else list_voices() or [None]
        self._offer([load_voice(name) for name in names])
        self._drivers: dict[tuple[str, str], Driver] = {}
        self._used: dict[tuple[str, str], float] = {}  # when each was last asked for
        self._ready: dict[Pair, TextToSpeech] = {}
        self._frontends: dict[str, Frontend] = {}
        self._loading = threading.Lock()
        self._turn = threading.RLock()  # held while running engines that threads cannot share

    def _offer(self, voices: Sequence[Voice]) -> None:
        self._voices = {voice.name: voice for voice in voices}
        self._sources: dict[tuple[str, str], ModelSource] = {
            (voice.name, model): override(source, self.options.overrides.get(model, {})).with_lexicon(
                self.options.lexicon
            )
            for voice in voices
            for model, source in {**voice.models, **self._given}.items()
        }
        self.voices = tuple(self._voices)
        self.languages = {voice.name: voice.language for voice in voices}
        self.descriptions = {voice.name: voice.description for voice in voices}
        self.names = self._offered(self._asked)
        self.first = self.find(self.names[0], self.voices[0])

    def models_of(self, voice: str, kind: str) -> list[str]:
        """The first one first: those of checkpoints, then as voice.yaml lists them."""
        mine = [model for name, model in self._sources if name == voice and get_model(model).kind == kind]
        return sorted(mine, key=lambda model: self._sources[voice, model].given_state is None)

    def _offered(self, asked: str | None) -> tuple[str, ...]:
        """The pairs' names, the first voice's first ones first."""
        pairs = [
            Pair(voice, acoustic, vocoder).name
            for voice in self.voices
            for acoustic in self.models_of(voice, "acoustic")
            for vocoder in self.models_of(voice, "vocoder")
        ]
        every = tuple(dict.fromkeys(pairs))
        if not every:
            raise InputError(f"voice {self.voices[0]!r} has no pair of an acoustic model and a vocoder")
        chosen = tuple(word.strip() for word in asked.split(",")) if asked else every
        for name in chosen:
            if name not in every:
                raise InputError(unknown("pair", name, every))
        return chosen

    def find(self, model: str, voice: str) -> Pair:
        """The pair that a request names. An InputError begins with the field: `model` or `voice`.

        Its voice is a voice's name, one of OpenAI's, or a speaker or mix of speakers of a voice (`speaker`).
        """
        name = self.names[0] if model in OPENAI_MODELS else model
        if name not in self.names:
            raise InputError(f"model: {unknown('model', model, (*self.names, *OPENAI_MODELS))}")
        acoustic, _, vocoder = name.partition("-")
        pairs = [Pair(one, acoustic, vocoder) for one in self.voices]
        meant = [pair for pair in pairs if pair.voice == voice or self.speaker(pair, voice)]
        whole = [pair for pair in meant if not self._lacking(pair)]
        if voice in OPENAI_VOICES and not whole:
            whole = pairs
        found = next(iter(whole or meant), None)
        if found is None:
            raise InputError(f"voice: {unknown('voice', voice, self.voice_names)}")
        if lacking := self._lacking(found):
            raise InputError(f"model: voice {found.voice!r} has no {lacking}")
        return found

    def _lacking(self, pair: Pair) -> str:
        """The model of the pair that its voice does not have, or nothing."""
        models = pair.acoustic, pair.vocoder
        return next((one for one in models if (pair.voice, one) not in self._sources), "")

    def speaker(self, pair: Pair, voice: str) -> str:
        """The speaker of the pair that a request's voice means; nothing where it means none of them."""
        asked = OPENAI_VOICES.get(voice, voice)
        named = {part.rpartition(":")[0].strip() or part for part in asked.split(",")}
        is_voice = voice in self.voices
        return asked if not is_voice and named <= set(self.speakers_of(pair.voice)) else ""

    @property
    def voice_names(self) -> list[str]:
        """What a request's voice may be: voices, speakers, and OpenAI's names."""
        speakers = [name for voice in self.voices for name in self.speakers_of(voice)]
        return list(dict.fromkeys([*self.voices, *speakers, *OPENAI_VOICES]))

    def controls(self, pair: Pair) -> frozenset[str]:
        """The names of the controls that change what the pair speaks; it need not be loaded."""
        return known_controls(*(self._sources[pair.voice, model] for model in (pair.acoustic, pair.vocoder)))

    def require_controls(self, pair: Pair, controls: Controls) -> None:
        """An InputError where the pair does not know a control that was asked for; it need not be loaded."""
        require_controls(
            controls, *(self._sources[pair.voice, model] for model in (pair.acoustic, pair.vocoder))
        )

    def speakers(self, pair: Pair) -> tuple[str, ...]:
        """The names of its speakers; none where it has one voice."""
        return self._sources[pair.voice, pair.acoustic].speakers

    def speakers_of(self, voice: str) -> tuple[str, ...]:
        """Those of all its acoustic models."""
        models = self.models_of(voice, "acoustic")
        return tuple(dict.fromkeys(name for one in models for name in self._sources[voice, one].speakers))

    def mel(self, pair: Pair) -> MelContract:
        return self._sources[pair.voice, pair.acoustic].mel

    def get(self, pair: Pair) -> TextToSpeech:
        """The pair, loaded and warmed up with a few words."""
        if (ready := self._ready.get(pair)) is None:
            with self._loading:
                ready = self._ready.get(pair) or self._load(pair)
        now = self._clock()
        for driver in (ready.acoustic, ready.vocoder):
            self._used[pair.voice, driver.source.model] = now
        return ready

    def is_ready(self, pair: Pair) -> bool:
        return pair in self._ready

    def chunk_sizes(self, tts: TextToSpeech, seconds: float = 60.0) -> ChunkSizes | None:
        """Of a stream's chunks; on a CPU a third of what a vocoder makes at a time, in steps and memory, and
        no more than these seconds.
        """
        if self.options.shares_engines:
            frames = max(CHUNKS.first, int(seconds * tts.sampling_rate / tts.vocoder.hop))
            most = min(tts.vocoder.longest_chunk // 3, frames)
            return replace(CHUNKS, largest=min(CHUNKS.largest, most), stretched=min(CHUNKS.stretched, most))
        return KERNEL_CHUNKS if tts.vocoder.prefers_batches else None

    @property
    def can_be_shared(self) -> bool:
        """Whether several threads may speak at the same time, with all that is loaded."""
        return all(driver.engines.can_be_shared for driver in list(self._drivers.values()))

    @property
    def memory_bytes(self) -> int:
        return sum(driver.engines.memory_bytes for driver in list(self._drivers.values()))

    @property
    def loaded(self) -> list[str]:
        """The models that are loaded, as voice/model."""
        return ["/".join(key) for key in list(self._drivers)]

    @property
    def ready(self) -> list[Pair]:
        """The pairs that speak at once."""
        return list(self._ready)

    def with_voice(self, name: str) -> Pairs:
        """These with a voice of the voices' folder as its files are now, and what is loaded of it anew."""
        known = self._voices.get(name)
        if known is None and name not in list_voices():
            raise InputError(unknown("voice", name, list_voices()))
        return self._changed({**self._voices, name: load_voice(known.folder if known else name)}, name)

    def without_voice(self, name: str) -> Pairs:
        """These without a voice; what speaks with it speaks on."""
        if name not in self._voices:
            raise InputError(unknown("voice", name, self.voices))
        voices = {key: voice for key, voice in self._voices.items() if key != name}
        if not voices:
            raise InputError(f"voice {name!r} is the only one: load another one first")
        return self._changed(voices, name)

    def _changed(self, voices: Mapping[str, Voice], name: str) -> Pairs:
        """With these voices, of which one is another than here. It takes the place of these by `take`."""
        with self._loading:
            other = copy.copy(self)
            stale = {repr(source.frontend) for (voice, _), source in self._sources.items() if voice == name}
            other._frontends = {key: one for key, one in self._frontends.items() if key not in stale}
            other._drivers = {key: one for key, one in self._drivers.items() if key[0] != name}
            other._used = dict(self._used)
            other._ready = {pair: one for pair, one in self._ready.items() if pair.voice != name}
            other._offer(list(voices.values()))
            possible = [
                pair for one in other.names if not other._lacking(pair := Pair(name, *one.split("-")))
            ]
            wanted = [pair for pair in possible if pair in self._ready] or possible[:1]
            if name in voices and not wanted:
                raise InputError(f"voice {name!r} has none of the pairs {', '.join(other.names)}")
            for pair in dict.fromkeys([*wanted, other.first]):
                if pair not in other._ready:
                    other._load(pair)
            return other

    def take(self, other: Pairs) -> None:
        """Becomes as `other`, at once for all threads; no pair is being loaded meanwhile."""
        vars(self).update(vars(other))

    def unload_idle(self, seconds: float) -> None:
        """Unloads the models that were not used for `seconds`, except the first pair's."""
        oldest = self._clock() - seconds
        with self._loading:
            for key in self._unloadable(self.first):
                if self._used[key] < oldest:
                    self._unload(key)

    def _load(self, pair: Pair) -> TextToSpeech:
        acoustic = cast(AcousticModel, self._driver(pair, "acoustic", pair.acoustic))
        vocoder = cast(Vocoder, self._driver(pair, "vocoder", pair.vocoder))
        mels = (acoustic.source.mel, vocoder.source.mel)
        require_same_contract(*mels, (pair.acoustic, pair.vocoder))
        frontend = self._frontend(acoustic.source)
        shared = acoustic.engines.can_be_shared and vocoder.engines.can_be_shared
        turn = nullcontext() if shared else self._turn
        tts = TextToSpeech(frontend, acoustic, vocoder, mels[0].sampling_rate, turn)
        if self.options.warm_up:
            for _ in tts.warm_up(streams=self.options.streams, sizes=self.chunk_sizes(tts)):
                pass
        else:
            tts.warm_up_when_idle()
        for _ in tts.stream(FIRST_WORDS):
            pass
        if self.options.shares_engines:
            use_large_pages()
        self._ready[pair] = tts
        self._keep_to_limit(pair)
        return tts

    def _driver(self, pair: Pair, kind: str, model: str) -> Driver:
        key = (pair.voice, model)
        if key not in self._sources:
            raise InputError(f"voice: {pair.voice!r} was unloaded")
        if key not in self._drivers:
            how, names = self.options, {"acoustic": pair.acoustic, "vocoder": pair.vocoder}
            self._drivers[key] = make_driver(
                self._sources[key],
                parse_backends(how.backend, names)[kind],
                how.device,
                how.threads,
                how.decoder if how.decoder in get_model(model).decoders else None,
                deployment=deployment_of(model, how.deployments, how.backend),
            )
            self._used[key] = self._clock()
        return self._drivers[key]

    def _unload(self, key: tuple[str, str]) -> None:
        voice, model = key
        for pair in [pair for pair in self._ready if pair.voice == voice]:
            if model in (pair.acoustic, pair.vocoder):
                del self._ready[pair]
        del self._drivers[key]

    def _keep_to_limit(self, wanted: Pair) -> None:
        """Unloads the least recently used models until the rest fits the limit; `wanted` stays."""
        unloadable = sorted(self._unloadable(wanted), key=lambda key: self._used[key])
        while self._limit is not None and self.memory_bytes > self._limit * 1e6 and unloadable:
            self._unload(unloadable.pop(0))

    def _unloadable(self, wanted: Pair) -> list[tuple[str, str]]:
        needed = {(wanted.voice, wanted.acoustic), (wanted.voice, wanted.vocoder)}
        return [key for key in self._drivers if key not in needed]

    def _frontend(self, source: ModelSource) -> Frontend:
        """The source's frontend, one for all models with the same one."""
        key = repr(source.frontend)
        if key not in self._frontends:
            frontend = self._frontends[key] = source.build_frontend()
            frontend.own_words = tuple(map(LexiconFile, source.lexicons))
        return self._frontends[key]
