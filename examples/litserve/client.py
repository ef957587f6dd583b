"""Asks examples/litserve/server.py for speech and writes it to a file. Standard library only.

python examples/litserve/client.py "Hello there." -o hello.wav
python examples/litserve/client.py "Hello there." -o hello.wav --whole
"""

import argparse
import json
import struct
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

HEADER = 44  # bytes in front of the samples


def ask(url: str, text: str, speed: float, whole: bool) -> tuple[bytes, float, float]:
    """The wav, and the seconds to its first samples and to its end."""
    body = json.dumps({"input": text, "speed": speed}).encode()
    route = "/speech" if whole else "/speech/stream"
    request = urllib.request.Request(url + route, body, {"Content-Type": "application/json"})
    start, first, data = time.perf_counter(), 0.0, b""
    with urllib.request.urlopen(request, timeout=300) as answer:
        while chunk := answer.read1(1 << 16):
            data += chunk
            if not first and len(data) > HEADER:
                first = time.perf_counter() - start
    return data, first, time.perf_counter() - start


def with_sizes(wav: bytes) -> bytes:
    """A stream's header has no sizes: some players need them in a file."""
    size = len(wav) - HEADER
    return wav[:4] + struct.pack("<I", size + 36) + wav[8:40] + struct.pack("<I", size) + wav[HEADER:]


def main() -> int:
    parser = argparse.ArgumentParser(description="Asks examples/litserve/server.py for speech.")
    parser.add_argument("text")
    parser.add_argument("-o", "--output", type=Path, default=Path("speech.wav"))
    parser.add_argument("--server", default="http://127.0.0.1:8010", metavar="URL")
    parser.add_argument("--speed", type=float, default=1.0)
    parser.add_argument("--whole", action="store_true", help="not as it is made")
    args = parser.parse_args()
    try:
        wav, first, total = ask(args.server, args.text, args.speed, args.whole)
    except urllib.error.HTTPError as error:
        print(f"error: {json.load(error)['detail']}", file=sys.stderr)
        return 2
    except urllib.error.URLError as error:
        print(f"error: no server at {args.server}: {error.reason}", file=sys.stderr)
        return 2
    if len(wav) <= HEADER:
        print("error: the server broke off", file=sys.stderr)
        return 1
    args.output.write_bytes(with_sizes(wav))
    seconds = (len(wav) - HEADER) / 2 / struct.unpack("<I", wav[24:28])[0]
    print(f"{args.output}: {seconds:.2f} s, first audio {first * 1e3:.0f} ms, all {total * 1e3:.0f} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
