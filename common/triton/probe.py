#!/usr/bin/env python3
"""Exit status 0 if every model that speaks or hears does: python3 probe.py [URL] [SECONDS].

Triton says that it is ready even where the process of a Python model has died or hangs. So this asks for
speech, streamed speech, and a transcript. A server that refuses because its queues are full is alive. It
needs Python only, and lies in the repository for who runs the server.
"""

import json
import random
import struct
import sys
import urllib.error
import urllib.request

URL, SECONDS = "http://127.0.0.1:8000", 10.0
FIRST = {"priority": 1}  # before all texts that wait
WORDS = "Ready."
SAMPLES = 16000  # of noise, for who hears


def tensor(name, datatype, values):
    return {"name": name, "datatype": datatype, "shape": [1, len(values)], "data": values}


def question(model: str) -> "tuple[str, dict] | None":
    """The path and the request that a model is asked, or None for a model that is a part of others."""
    if model == "text_to_speech":
        asked, wanted = [tensor("text", "BYTES", [WORDS])], "audio_length"
    elif model == "text_to_speech_stream":
        return f"{model}/generate_stream", {"text": WORDS}
    elif model.endswith("-ensemble"):
        asked, wanted = [tensor("NUM_SAMPLES", "INT32", [SAMPLES])], "TRANSCRIPT"
    else:
        return None
    return f"{model}/infer", {"inputs": asked, "outputs": [{"name": wanted}], "parameters": FIRST}


def noise(datatype):
    """A signal for who hears, and its bytes: JSON has no form for FP16 (`--jasper-client`)."""
    rng = random.Random(0)
    values = [0.1 * rng.gauss(0, 1) for _ in range(SAMPLES)]
    data = struct.pack(f"<{SAMPLES}{'e' if datatype == 'FP16' else 'f'}", *values)
    entry = {"name": "AUDIO_SIGNAL", "datatype": datatype, "shape": [1, SAMPLES]}
    return {**entry, "parameters": {"binary_data_size": len(data)}}, data


def ask(url, content, seconds, data=b""):
    """The status and the first line of an answer that has something in it; `data` are the inputs' bytes."""
    head = json.dumps(content).encode()
    request = urllib.request.Request(url, head + data if content is not None else None)
    if data:
        request.add_header("Inference-Header-Content-Length", str(len(head)))
    try:
        with urllib.request.urlopen(request, timeout=seconds) as answer:
            lines = (line for line in answer if line.strip())
            return answer.status, next(lines, b"").decode(errors="replace")
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(errors="replace")


def trouble(url, model, seconds):
    """Why a model does not answer, or None."""
    path, content = question(model) or ("", {})
    data = b""
    if model.endswith("-ensemble"):
        status, line = ask(f"{url}/v2/models/{model}", None, seconds)
        if status != 200:
            return f"({status}) {line}"
        signal, data = noise(json.loads(line)["inputs"][0]["datatype"])
        content = {**content, "inputs": [*content["inputs"], signal]}
    status, line = ask(f"{url}/v2/models/{path}", content, seconds, data)
    if status == 503 or '"error":"busy' in line.replace(" ", ""):
        print(f"{url}: {model} is busy")
        return None
    return None if status == 200 and line and '"error"' not in line else f"({status}) {line}"


def main(url=URL, seconds=str(SECONDS)):
    try:
        _, index = ask(f"{url}/v2/repository/index", {}, float(seconds))
        asked = sorted({row["name"] for row in json.loads(index) if question(row["name"])})
        for model in asked:
            why = trouble(url, model, float(seconds))
            if why:
                print(f"{url}: {model} does not answer: {why}")
                return 1
    except (OSError, ValueError, LookupError, TypeError) as error:
        print(f"{url} does not answer: {error}")
        return 1
    print(f"{url} answers: {', '.join(asked) or 'it has no model that speaks or hears'}")
    return 0 if asked else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
