"""Clients of our models in a Triton server, over HTTP or gRPC, by NVIDIA's library `tritonclient`.

A client has one connection, and belongs to the thread that makes it: over HTTP the library waits by gevent.
"""

from __future__ import annotations

import importlib
import json
import queue
import re
import urllib.error
import urllib.parse
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from typing import Any

import numpy as np

from melforge.common.arrays import pad_rows
from melforge.common.errors import InputError, install_advice
from melforge.common.recognition.transcript import greedy_text
from melforge.common.serve.client import Address, ServerError
from melforge.common.text import Unspoken
from melforge.common.triton.tensors import (
    AUDIO,
    AUDIO_LENGTH,
    AUDIO_SIGNAL,
    MEL_LENGTHS,
    NUM_SAMPLES,
    STREAM,
    TEXT,
    TRANSCRIPT,
    TRANSCRIPT_TEXT,
    UNSPOKEN,
    WHOLE,
)

STATUS = {"INVALID_ARGUMENT": 400, "NOT_FOUND": 404, "UNAVAILABLE": 0}  # gRPC's -> HTTP's, where it has one
WIRE_TYPES = {"float16": "FP16", "float32": "FP32", "int32": "INT32", "object": "BYTES"}
EVENT = "data: "
AT_ONCE = 1 << 18  # bytes that are read of a stream
RATE = "sampling_rate"  # a parameter of the models' configs
SPEECH_OUTPUTS = tuple(tensor.name for tensor in (AUDIO, AUDIO_LENGTH, MEL_LENGTHS, UNSPOKEN))
NO_TRITON = "what answers there is no Triton Inference Server"
SHOWN = 200  # characters of an answer that is no error of Triton's form


@dataclass(frozen=True, eq=False)
class TritonAudio:
    """The audio of a text, or of a chunk of it: float32 [S], and how many frames its mels have.

    Of a stream the first chunk has what could not be spoken, and the frames are not known.
    """

    audio: np.ndarray
    frames: int = 0
    unspoken: tuple[Unspoken, ...] = ()


class Client(ABC):
    """Parameters are controls by name. Raises ServerError for error answers, OSError without a server."""

    protocol: str  # the module of tritonclient

    def __init__(self, address: Address, timeout: float, **how: Any):
        try:
            self._triton: Any = importlib.import_module(f"tritonclient.{self.protocol}")
        except (ImportError, RuntimeError):  # the latter where it was installed without this protocol
            raise InputError(install_advice("tritonclient", "a client of Triton")) from None
        self.address, self.timeout = address, timeout
        self._configs: dict[str, dict[str, Any]] = {}
        host = f"[{address.host}]" if ":" in address.host else address.host
        self._client = self._triton.InferenceServerClient(
            f"{host}:{address.port}{how.pop('path', '')}", **how
        )

    def sampling_rate(self, model: str = WHOLE) -> int:
        """Hz of the audio that a model gives or takes."""
        return int(self.parameter(RATE, model))

    def parameter(self, name: str, model: str) -> str:
        """A parameter of a model's config; an InputError if it has none of this name."""
        parameters = self.parameters_of(model)
        if name not in parameters:
            raise InputError(
                f"its model {model} has no parameter {name}: melforge triton writes those that have"
            )
        return parameters[name]

    def parameters_of(self, model: str) -> dict[str, str]:
        try:
            parameters = self._config(model).get("parameters", {})
            return {name: value["string_value"] for name, value in parameters.items()}
        except (ValueError, AttributeError, KeyError, TypeError):
            raise ServerError(0, NO_TRITON) from None

    def speak(self, texts: Sequence[str], parameters: Mapping[str, Any]) -> list[TritonAudio]:
        """The texts in one request."""
        given = [self._input(TEXT.name, encoded(texts, (len(texts), 1)))]
        audio, lengths, frames, unspoken = self._infer(WHOLE, given, SPEECH_OUTPUTS, parameters)
        return [
            TritonAudio(samples[:length], int(counts.clip(0).sum()), unspoken_of(text, left_out))
            for text, samples, (length,), counts, (left_out,) in zip(
                texts, audio, lengths, frames, unspoken, strict=True
            )
        ]

    @abstractmethod
    def stream(self, text: str, parameters: Mapping[str, Any]) -> Iterator[TritonAudio]:
        """A text in chunks as they come."""

    def hear(self, audios: Sequence[np.ndarray], model: str) -> list[str]:
        """What an ensemble around a recogniser hears in recordings float32 [S], sent in one request."""
        config = self._configs.get(model) or self._configs.setdefault(model, self._config(model))
        halves = config["input"][0]["data_type"] == "TYPE_FP16"
        rows = [np.asarray(audio, np.float16 if halves else np.float32) for audio in audios]
        counts = np.array([[len(row)] for row in rows], np.int32)
        signal = pad_rows(rows, len(rows), int(counts.max()))
        given = [self._input(AUDIO_SIGNAL.name, signal), self._input(NUM_SAMPLES.name, counts)]
        if any(output["name"] == TRANSCRIPT_TEXT.name for output in config["output"]):
            (texts,) = self._infer(model, given, [TRANSCRIPT_TEXT.name], {})
            return [text.decode() for text in texts.reshape(-1)]
        (labels,) = self._infer(model, given, [TRANSCRIPT.name], {})
        characters = config["parameters"]["labels"]["string_value"]
        return [" ".join(greedy_text(row, characters).split()) for row in labels]

    @abstractmethod
    def statistics(self) -> list[dict[str, Any]]:
        """Triton's `model_stats`: what each model has done since it was loaded."""

    def close(self) -> None:
        self._client.close()

    @abstractmethod
    def _config(self, model: str) -> dict[str, Any]:
        """A model's config, as Triton has it."""

    def _input(self, name: str, array: np.ndarray) -> Any:
        tensor = self._triton.InferInput(name, list(array.shape), WIRE_TYPES[str(array.dtype)])
        tensor.set_data_from_numpy(array)
        return tensor

    def _infer(
        self,
        model: str,
        inputs: Sequence[Any],
        names: Sequence[str],
        parameters: Mapping[str, Any],
        **how: Any,
    ) -> list[np.ndarray]:
        """The outputs of these names."""
        wanted = [self._triton.InferRequestedOutput(name) for name in names]
        given = {"outputs": wanted, "parameters": in_words(parameters), **how}
        answer = self._call(lambda: self._client.infer(model, inputs, **given))
        return [answer.as_numpy(name) for name in names]

    def _call(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except self._triton.InferenceServerException as error:
            raise self._error(error) from None

    def _error(self, error: Any) -> ServerError:
        status, message = (error.status() or "").rpartition(".")[2], error.message()
        if not status.isdigit():
            return ServerError(STATUS.get(status, 500), without_ensemble(message))
        body = error.debug_details()  # where the library could not read it
        text = without_ensemble(message) if isinstance(message, str) else NO_TRITON
        return ServerError(int(status), text if body is None else sentence(body))


class HttpClient(Client):
    """Audio comes as bytes, except in streams: Triton streams only JSON over HTTP."""

    protocol = "http"

    def __init__(self, address: Address, timeout: float):
        how: dict[str, Any] = {"connection_timeout": timeout, "network_timeout": timeout}
        if address.secure:
            secure = importlib.import_module("gevent.ssl").create_default_context
            how |= {"ssl": True, "ssl_context_factory": secure}
        super().__init__(address, timeout, path=address.path, **how)
        self._broken = importlib.import_module("geventhttpclient.response").HTTPParseError

    def _config(self, model: str) -> dict[str, Any]:
        return self._call(lambda: self._client.get_model_config(model))

    def statistics(self) -> list[dict[str, Any]]:
        return self._call(self._client.get_inference_statistics)["model_stats"]

    def stream(self, text: str, parameters: Mapping[str, Any]) -> Iterator[TritonAudio]:
        """By Python's own library: `tritonclient` has no streams over HTTP."""
        url = f"{self.address}/v2/models/{STREAM}/generate_stream"
        request = urllib.request.Request(url, json.dumps({TEXT.name: text, **parameters}).encode())
        try:
            with urllib.request.urlopen(request, timeout=self.timeout) as answer:
                for line in lines(answer):
                    if line.startswith(EVENT):
                        event = json.loads(line.removeprefix(EVENT))
                        if "error" in event:
                            raise ServerError(500, event["error"])
                        audio = np.array(event[AUDIO.name], np.float32).reshape(-1)
                        yield TritonAudio(audio, unspoken=unspoken_of(text, event.get(UNSPOKEN.name)))
        except urllib.error.HTTPError as error:
            body = error.read().decode(errors="replace")
            raise ServerError(error.code, sentence(body)) from None
        except HTTPException as error:
            raise broken(error) from None

    def _call(self, call: Callable[[], Any]) -> Any:
        try:
            return super()._call(call)
        except self._broken as error:
            raise broken(error) from None


class GrpcClient(Client):
    protocol = "grpc"

    def __init__(self, address: Address, timeout: float):
        super().__init__(address, timeout, ssl=address.secure)
        self._how = {"client_timeout": timeout}

    def _config(self, model: str) -> dict[str, Any]:
        call = self._client.get_model_config
        return self._call(lambda: call(model, as_json=True, **self._how))["config"]

    def statistics(self) -> list[dict[str, Any]]:
        call = self._client.get_inference_statistics
        return self._call(lambda: call(as_json=True, **self._how))["model_stats"]

    def _infer(self, *given: Any, **how: Any) -> list[np.ndarray]:
        return super()._infer(*given, **self._how, **how)

    def stream(self, text: str, parameters: Mapping[str, Any]) -> Iterator[TritonAudio]:
        answers: queue.Queue[Any] = queue.Queue()
        ended = False
        self._client.start_stream(lambda result, error: answers.put(error or result))
        given = [self._input(TEXT.name, encoded([text], (1,)))]
        how = {"parameters": in_words(parameters), "enable_empty_final_response": True}
        try:
            self._call(lambda: self._client.async_stream_infer(STREAM, given, **how))
            while True:
                answer = answers.get(timeout=self.timeout)
                ended = isinstance(answer, Exception)
                if ended:
                    raise self._stream_error(answer, text, parameters)
                if ended := answer.get_response().parameters["triton_final_response"].bool_param:
                    return
                unspoken = answer.as_numpy(UNSPOKEN.name)
                found = unspoken_of(text, None if unspoken is None else unspoken[0])
                yield TritonAudio(answer.as_numpy(AUDIO.name), unspoken=found)
        except queue.Empty:
            raise ServerError(0, f"no audio came in {self.timeout:g} s") from None
        finally:
            # tritonserver 2.51 may crash where a request is cancelled that has ended.
            self._client.stop_stream(cancel_requests=not ended)

    def _stream_error(self, error: Any, text: str, parameters: Mapping[str, Any]) -> ServerError:
        """A stream's error. Its status is that of the same text asked for as a whole, if that fails alike.

        Triton sends statuses in streams too where the client asks for them (`triton_grpc_error`), but
        tritonserver 2.51 may crash then.
        """
        found = self._error(error)
        try:
            self.speak([text], parameters)
        except ServerError as whole:
            if str(whole) == str(found):
                return whole
        return found


CLIENTS: dict[str, type[HttpClient] | type[GrpcClient]] = {"http": HttpClient, "grpc": GrpcClient}


def encoded(texts: Sequence[str], shape: tuple[int, ...]) -> np.ndarray:
    """Texts as a tensor of bytes."""
    return np.array([text.encode() for text in texts], object).reshape(shape)


def unspoken_of(text: str, rows: str | bytes | None) -> tuple[Unspoken, ...]:
    """What could not be spoken of a text, as the output says."""
    return tuple(Unspoken(**row, text=text) for row in json.loads(rows or "[]"))


def in_words(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters as tritonclient takes them: fractions as text, which our models read too."""
    return {name: str(value) if isinstance(value, float) else value for name, value in parameters.items()}


def lines(answer: HTTPResponse) -> Iterator[str]:
    """Lines as they come. Iterating over the answer itself would not notice that it breaks off."""
    rest = b""
    while data := answer.read1(AT_ONCE):
        *whole, rest = (rest + data).split(b"\n")
        yield from (line.decode() for line in whole)


def sentence(body: str) -> str:
    """The message of an error answer: Triton's words, else the beginning of the answer."""
    try:
        said = json.loads(body.removeprefix(EVENT))
    except ValueError:
        return body[:SHOWN] or "an answer without words"
    text = said.get("error") if isinstance(said, dict) else None
    return without_ensemble(text) if isinstance(text, str) else NO_TRITON


def broken(error: Exception) -> ServerError:
    return ServerError(0, f"the connection broke ({type(error).__name__})")


def without_ensemble(text: str) -> str:
    return re.sub(r"^in ensemble '\w+', ", "", text)
