"""Records sentences in the browser, for a voice: a page shows each, and tells level and noise."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from shlex import quote

from melforge.common.cli import options
from melforge.common.cli.serve import require_server
from melforge.common.errors import InputError, counted
from melforge.common.files import read_text

EPILOG = """The 60 sentences that are shipped are some four minutes of speech. What is recorded stays: the
command goes on with the sentences that are missing. It serves this machine's browser alone.

example:
  melforge voice record recordings
  melforge voice clone recordings ann"""

OPTIONS = """
  folder DIR           for the recordings: wavs/ and metadata.csv, which melforge voice prepare and clone read
  --sentences PATH     sentences to read in place of those shipped, one a line
  --port PORT=8000     port of the page on this machine; 0 for any free one
"""


def main(argv: Sequence[str] | None = None) -> int:
    args = options.make_parser(OPTIONS, description=__doc__, epilog=EPILOG).parse_args(argv)
    require_server()
    import uvicorn

    from melforge.common.serve.server import listen
    from melforge.common.training.corpus.recorder import RecordingFolder, make_recorder, shipped_sentences

    given = read_text(args.sentences).splitlines() if args.sentences else shipped_sentences()
    sentences = [text for line in given if (text := " ".join(line.replace("|", " ").split()))]
    if not sentences:
        raise InputError(f"{args.sentences} holds no sentences: write one a line")
    listening = listen("127.0.0.1", args.port)
    kept = RecordingFolder(args.folder, sentences)
    print(f"http://127.0.0.1:{listening.getsockname()[1]} in a browser of this machine; Ctrl-C ends it")
    server = uvicorn.Server(uvicorn.Config(make_recorder(kept), log_config=None, access_log=False))
    with contextlib.suppress(KeyboardInterrupt):  # uvicorn raises it again once it has ended
        server.run(sockets=[listening])
    recorded = sum(row["recorded"] for row in kept.rows())
    clone = f"melforge voice clone {quote(str(args.folder))} NAME"
    print(f"{args.folder} has {counted(recorded, 'recording')}: {clone}")
    return 0
