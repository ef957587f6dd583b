"""Speaks what a language model writes while it writes, without a framework: OpenAI's client and a WebSocket.

melforge serve
python examples/assistant.py "What is a comet?" --llm http://127.0.0.1:11434/v1 --model llama3.2 -o comet.wav
"""

import argparse
import json
import os
import threading
import wave

from openai import OpenAI
from websockets.sync.client import connect

RATE = 22050  # Hz

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("question")
parser.add_argument("--llm", required=True, help="address of a server with OpenAI's chat API")
parser.add_argument("--model", required=True, help="its model")
parser.add_argument("--server", default="ws://127.0.0.1:8000", help="address of melforge serve")
parser.add_argument("--voice", default="alloy")
parser.add_argument("-o", "--output", default="answer.wav")
args = parser.parse_args()

key = os.environ.get("MELFORGE_API_KEY")
headers = {"Authorization": f"Bearer {key}"} if key else {}
llm = OpenAI(base_url=args.llm, api_key=os.environ.get("OPENAI_API_KEY", "none"))
asked = [{"role": "user", "content": args.question}]

with connect(f"{args.server}/v1/audio/speech/live", additional_headers=headers) as speech:

    def write() -> None:
        for part in llm.chat.completions.create(model=args.model, messages=asked, stream=True):
            if part.choices and (text := part.choices[0].delta.content):
                print(text, end="", flush=True)
                speech.send(json.dumps({"type": "text", "text": text}))
        speech.send(json.dumps({"type": "end"}))

    speech.send(json.dumps({"type": "session", "voice": args.voice, "sample_rate": RATE}))
    threading.Thread(target=write).start()
    with wave.open(args.output, "wb") as file:
        file.setparams((1, 2, RATE, 0, "NONE", ""))
        for message in speech:  # a device could play it as it comes
            if isinstance(message, bytes):
                file.writeframesraw(message)
            elif (told := json.loads(message))["type"] == "error":
                raise SystemExit(told["error"]["message"])
print()
