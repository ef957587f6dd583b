"""Clients of the models in a repository of ours: KServe's protocol over HTTP by Python's library, or gRPC.

Each instance has one connection, for one thread at a time.
"""

from __future__ import annotations

import http.client
import importlib
import json
import queue
import re
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from melforge.common.arrays import pad_rows
from melforge.common.errors import InputError, require_package
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
    TRANSCRIPT_TEXT,
    UNSPOKEN,
    WHOLE,
)

GRPC_STATUS = {"INVALID_ARGUMENT": 400, "NOT_FOUND": 404, "UNAVAILABLE": 0}
WIRE_TYPES = {"float32": "FP32", "int32": "INT32"}
EVENT = b"data: "
AT_ONCE = 1 << 18  # bytes that are read of a stream
RATE = "sampling_rate"  # a parameter of the models' configs
BESIDE = (AUDIO_LENGTH, MEL_LENGTHS, UNSPOKEN)  # the outputs that are asked for beside the audio


@dataclass(frozen=True, eq=False)
class Speech:
    """What became of a text, or a chunk of it: the audio float32 [S], and how many frames its mels have.

    Of a stream the first chunk has what could not be spoken, and the frames are not known.
    """

    audio: np.ndarray
    frames: int = 0
    unspoken: tuple[Unspoken, ...] = ()


class Client(Protocol):
    """Parameters are controls by their names. ServerError: an answer that is no speech; OSError: none."""

    def sampling_rate(self, model: str = WHOLE) -> int:
        """Hz of the audio that a model gives or takes."""
        return int(self.parameter(RATE, model))

    def parameter(self, name: str, model: str) -> str:
        """Of a model's config. An InputError where it has none of this name."""
        parameters = self.parameters_of(model)
        if name not in parameters:
            raise InputError(
                f"its model {model} has no parameter {name}: melforge triton writes those that have"
            )
        return parameters[name]

    def parameters_of(self, model: str) -> dict[str, str]: ...

    def speak(self, texts: Sequence[str], parameters: Mapping[str, Any]) -> list[Speech]:
        """The texts in one request."""
        ...

    def stream(self, text: str, parameters: Mapping[str, Any]) -> Iterator[Speech]:
        """A text in chunks as they come."""
        ...

    def hear(self, audios: Sequence[np.ndarray], model: str) -> list[str]:
        """What an ensemble around a recogniser hears in recordings float32 [S], sent in one request."""
        ...

    def statistics(self) -> list[dict[str, Any]]:
        """Triton's `model_stats`: what each model has done since it was loaded."""
        ...

    def close(self) -> None: ...


class HttpClient(Client):
    """Audio comes as bytes; only in a stream as JSON, since Triton streams nothing else over HTTP."""

    def __init__(self, address: Address, timeout: float):
        self.address = address
        kind = http.client.HTTPSConnection if address.secure else http.client.HTTPConnection
        self._connection = kind(address.host, address.port, timeout=timeout)

    def parameters_of(self, model: str) -> dict[str, str]:
        with self._unbroken():
            content = self._ask("GET", f"/v2/models/{model}/config").read()
        try:
            parameters = json.loads(content).get("parameters", {})
            return {name: value["string_value"] for name, value in parameters.items()}
        except (ValueError, AttributeError, KeyError, TypeError):
            raise ServerError(0, "what answers there is no Triton Inference Server") from None

    def speak(self, texts: Sequence[str], parameters: Mapping[str, Any]) -> list[Speech]:
        shape = [len(texts), 1]
        audio = {"name": AUDIO.name, "parameters": {"binary_data": True}}
        body = {
            "inputs": [{"name": TEXT.name, "datatype": "BYTES", "shape": shape, "data": list(texts)}],
            "outputs": [audio, *({"name": tensor.name} for tensor in BESIDE)],
            "parameters": dict(parameters),
        }
        with self._unbroken():
            answer = self._ask("POST", f"/v2/models/{WHOLE}/infer", body)
            head = int(answer.headers["Inference-Header-Content-Length"])
            data = answer.read()
        outputs = {output["name"]: output for output in json.loads(data[:head])["outputs"]}
        samples = np.frombuffer(data[head:], "<f4").reshape(len(texts), -1)
        beside = (np.reshape(outputs[tensor.name]["data"], (len(texts), -1)) for tensor in BESIDE)
        return speeches(texts, samples, *beside)

    def stream(self, text: str, parameters: Mapping[str, Any]) -> Iterator[Speech]:
        path = f"/v2/models/{STREAM}/generate_stream"
        with self._unbroken():
            for line in lines(self._ask("POST", path, {TEXT.name: text, **parameters})):
                if line.startswith(EVENT):
                    event = json.loads(line.removeprefix(EVENT))
                    if "error" in event:
                        raise ServerError(500, event["error"])
                    audio = np.array(event[AUDIO.name], np.float32).reshape(-1)
                    yield Speech(audio, unspoken=unspoken_of(text, event.get(UNSPOKEN.name)))

    def hear(self, audios: Sequence[np.ndarray], model: str) -> list[str]:
        signal, counts = recordings_of(audios)
        arrays = {AUDIO_SIGNAL: signal.astype("<f4"), NUM_SAMPLES: counts.astype("<i4")}
        inputs = [
            {
                **{"name": tensor.name, "datatype": WIRE_TYPES[tensor.dtype], "shape": array.shape},
                "parameters": {"binary_data_size": array.nbytes},
            }
            for tensor, array in arrays.items()
        ]
        head = json.dumps({"inputs": inputs, "outputs": [{"name": TRANSCRIPT_TEXT.name}]}).encode()
        data = b"".join([head, *(array.tobytes() for array in arrays.values())])
        with self._unbroken():
            how = {"Inference-Header-Content-Length": str(len(head))}
            answer = json.loads(self._send("POST", f"/v2/models/{model}/infer", data, how).read())
        (texts,) = (one["data"] for one in answer["outputs"] if one["name"] == TRANSCRIPT_TEXT.name)
        return texts

    def statistics(self) -> list[dict[str, Any]]:
        with self._unbroken():
            return json.loads(self._ask("GET", "/v2/models/stats").read())["model_stats"]

    def close(self) -> None:
        self._connection.close()

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> http.client.HTTPResponse:
        return self._send(method, path, None if body is None else json.dumps(body).encode(), {})

    def _send(
        self, method: str, path: str, data: bytes | None, headers: Mapping[str, str]
    ) -> http.client.HTTPResponse:
        target = urllib.parse.quote(self.address.path + path, safe="/%")  # a model's name may be any text
        self._connection.request(method, target, data, dict(headers))
        answer = self._connection.getresponse()
        if answer.status != 200:
            raise ServerError(answer.status, sentence(answer.read()))
        return answer

    @contextmanager
    def _unbroken(self) -> Iterator[None]:
        """A ServerError where the server breaks off; the next request opens the connection again."""
        try:
            yield
        except http.client.HTTPException as error:
            self._connection.close()
            raise ServerError(0, f"the connection broke ({type(error).__name__})") from None
        except OSError:
            self._connection.close()
            raise


class GrpcClient(Client):
    """By the package tritonclient, whose numbers in parameters may be whole only: others go as strings."""

    def __init__(self, address: Address, timeout: float):
        require_package("tritonclient", "gRPC")
        self._grpc = importlib.import_module("tritonclient.grpc")
        self._timeout = timeout
        self._client = self._grpc.InferenceServerClient(f"{address.host}:{address.port}", ssl=address.secure)

    def parameters_of(self, model: str) -> dict[str, str]:
        config = self._call(lambda: self._client.get_model_config(model, client_timeout=self._timeout)).config
        return {name: value.string_value for name, value in config.parameters.items()}

    def speak(self, texts: Sequence[str], parameters: Mapping[str, Any]) -> list[Speech]:
        given = {"inputs": self._inputs(texts, (len(texts), 1)), "parameters": _strings(parameters)}
        names = [tensor.name for tensor in (AUDIO, *BESIDE)]
        outputs = [self._grpc.InferRequestedOutput(name) for name in names]
        answer = self._call(
            lambda: self._client.infer(WHOLE, outputs=outputs, client_timeout=self._timeout, **given)
        )
        return speeches(texts, *map(answer.as_numpy, names))

    def stream(self, text: str, parameters: Mapping[str, Any]) -> Iterator[Speech]:
        answers: queue.Queue[Any] = queue.Queue()
        ended = False
        self._client.start_stream(lambda result, error: answers.put(error or result))
        try:
            self._call(
                lambda: self._client.async_stream_infer(
                    STREAM,
                    self._inputs([text], (1,)),
                    parameters=_strings(parameters),
                    enable_empty_final_response=True,
                )
            )
            while True:
                answer = answers.get(timeout=self._timeout)
                ended = isinstance(answer, Exception)
                if ended:
                    raise self._stream_error(answer, text, parameters)
                if ended := answer.get_response().parameters["triton_final_response"].bool_param:
                    return
                unspoken = answer.as_numpy(UNSPOKEN.name)
                found = unspoken_of(text, None if unspoken is None else unspoken[0])
                yield Speech(answer.as_numpy(AUDIO.name), unspoken=found)
        except queue.Empty:
            raise ServerError(0, f"no audio came in {self._timeout:g} s") from None
        finally:
            # tritonserver 2.51 may crash where a request is cancelled that has ended.
            self._client.stop_stream(cancel_requests=not ended)

    def _stream_error(self, error: Any, text: str, parameters: Mapping[str, Any]) -> ServerError:
        """A stream's error, which has a status only where the whole text gives the same one.

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

    def hear(self, audios: Sequence[np.ndarray], model: str) -> list[str]:
        inputs = []
        for tensor, array in zip((AUDIO_SIGNAL, NUM_SAMPLES), recordings_of(audios), strict=True):
            given = self._grpc.InferInput(tensor.name, list(array.shape), WIRE_TYPES[tensor.dtype])
            given.set_data_from_numpy(array)
            inputs.append(given)
        outputs = [self._grpc.InferRequestedOutput(TRANSCRIPT_TEXT.name)]
        answer = self._call(
            lambda: self._client.infer(model, inputs, outputs=outputs, client_timeout=self._timeout)
        )
        return [text.decode() for text in answer.as_numpy(TRANSCRIPT_TEXT.name).reshape(-1)]

    def statistics(self) -> list[dict[str, Any]]:
        call = self._client.get_inference_statistics
        return self._call(lambda: call(as_json=True, client_timeout=self._timeout))["model_stats"]

    def close(self) -> None:
        self._client.close()

    def _inputs(self, texts: Sequence[str], shape: tuple[int, ...]) -> list[Any]:
        tensor = self._grpc.InferInput(TEXT.name, list(shape), "BYTES")
        tensor.set_data_from_numpy(np.array([text.encode() for text in texts], object).reshape(shape))
        return [tensor]

    def _call(self, call: Any) -> Any:
        try:
            return call()
        except self._grpc.InferenceServerException as error:
            raise self._error(error) from None

    def _error(self, error: Any) -> ServerError:
        status = (error.status() or "").rpartition(".")[2]
        return ServerError(GRPC_STATUS.get(status, 500), without_ensemble(error.message()))


CLIENTS: dict[str, Any] = {"http": HttpClient, "grpc": GrpcClient}


def recordings_of(audios: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Recordings [S] as a request has them: float32 [B, S] and their lengths, int32 [B, 1]."""
    rows = [np.asarray(audio, np.float32) for audio in audios]
    counts = np.array([[len(row)] for row in rows], np.int32)
    return pad_rows(rows, len(rows), int(counts.max())), counts


def speeches(
    texts: Sequence[str], audio: np.ndarray, lengths: np.ndarray, frames: np.ndarray, unspoken: np.ndarray
) -> list[Speech]:
    """Of the outputs [B, S], [B, 1], [B, U] and [B, 1] of a request, without what pads them."""
    return [
        Speech(samples[:length], int(counts.clip(0).sum()), unspoken_of(text, left_out))
        for text, samples, (length,), counts, (left_out,) in zip(
            texts, audio, lengths, frames, unspoken, strict=True
        )
    ]


def unspoken_of(text: str, rows: str | bytes | None) -> tuple[Unspoken, ...]:
    """What could not be spoken of a text, as the output says."""
    return tuple(Unspoken(**row, text=text) for row in json.loads(rows or "[]"))


def lines(answer: http.client.HTTPResponse) -> Iterator[bytes]:
    """As they come. Iterating over the answer would take one that breaks off for a whole one."""
    rest = b""
    while data := answer.read1(AT_ONCE):
        *whole, rest = (rest + data).split(b"\n")
        yield from whole


def sentence(body: bytes) -> str:
    """What an answer says that is no speech."""
    text = body.decode(errors="replace").removeprefix(EVENT.decode())
    try:
        return without_ensemble(str(json.loads(text)["error"]))
    except (ValueError, KeyError, TypeError):
        return text[:200] or "an answer without words"


def without_ensemble(text: str) -> str:
    return re.sub(r"^in ensemble '\w+', ", "", text)


def _strings(parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {name: str(value) if isinstance(value, float) else value for name, value in parameters.items()}
