#!/usr/bin/env python3
"""Exit status 0 if the server speaks: python3 probe.py [URL] [SECONDS].

Triton says that it is ready even where the process of a Python model has died, which it does not start again.
So this asks for speech. It needs Python only, and lies in the repository for who runs the server.
"""

import json
import sys
import urllib.error
import urllib.request

URL, SECONDS = "http://127.0.0.1:8000", 10.0
QUESTION = {
    "inputs": [{"name": "text", "datatype": "BYTES", "shape": [1, 1], "data": ["Ready."]}],
    "outputs": [{"name": "audio_length"}],
}


def main(url: str = URL, seconds: str = str(SECONDS)) -> int:
    path = f"{url}/v2/models/text_to_speech/infer"
    request = urllib.request.Request(path, json.dumps(QUESTION).encode())
    try:
        with urllib.request.urlopen(request, timeout=float(seconds)) as answer:
            samples = json.load(answer)["outputs"][0]["data"][0]
    except urllib.error.HTTPError as error:
        print(f"{url} does not speak ({error.code}): {error.read().decode(errors='replace')}")
        return 1
    except (OSError, ValueError, LookupError) as error:
        print(f"{url} does not speak: {error}")
        return 1
    print(f"{url} speaks: {samples} samples")
    return 0 if samples else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
