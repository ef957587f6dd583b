"""Speaks text: one sentence, a file of phrases, or standard input, to sound files or standard output."""

from __future__ import annotations

import argparse
import json
import time

from common.cli import options, run
from common.cli.list import list_available
from common.cli.speak import show_text, show_timing
from common.errors import InputError

RETRIES = 2
EPILOG = """examples:
  infer.py --text "Hello there." -o hello.wav
  infer.py -i phrases.txt -o spoken/ --pace 0.9 --timing       # spoken/1.wav, spoken/2.wav, ...
  infer.py --acoustic tacotron2 --text "Hello there." --retry --plot attention.png
  echo "Hello there." | infer.py -i - -o - | aplay
"""


def parse() -> argparse.Namespace:
    parser = options.Parser(
        description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    text = parser.add_argument_group("text").add_mutually_exclusive_group()
    text.add_argument("--text", help="what to speak")
    text.add_argument(
        "-i",
        "--input",
        metavar="FILE",
        help=".txt with a phrase a line (makes 1.wav, 2.wav, ...), .tsv with name and text; - is stdin",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="PATH",
        help="sound file (.wav .flac .ogg .mp3), folder, or - for wav on stdout "
        "(default: speech.wav; for many phrases: the folder speech)",
    )
    options.add_model_arguments(parser)
    options.add_control_arguments(parser)
    more = parser.add_argument_group("more")
    more.add_argument("--show-text", action="store_true", help="print what would be spoken, without speaking")
    more.add_argument("--strict", action="store_true", help="a symbol that cannot be spoken is an error")
    more.add_argument(
        "--retry",
        nargs="?",
        type=options.not_negative,
        const=RETRIES,
        default=0,
        metavar="N",
        help="what went wrong is spoken again, with N other seeds and then in pieces "
        f"(default: 0; without N: {RETRIES})",
    )
    more.add_argument(
        "--batch-size", type=options.positive, metavar="N", help="utterances at a time (default: 8)"
    )
    more.add_argument("--save-mel", action="store_true", help="also save each mel as .npy beside its sound")
    more.add_argument("--plot", metavar="PNG", help="draw mel, attention and pitch (many phrases: a folder)")
    more.add_argument("--warm-up", action="store_true", help=options.WARM_UP_HELP)
    more.add_argument("--timing", action="store_true", help="print what the time went to, on stderr")
    more.add_argument("--json", action="store_true", help="print what was made, as JSON on stdout")
    more.add_argument("--list", action="store_true", help="list voices, models, backends and what is built")
    args = parser.parse_args()
    if not args.list and args.text is None and args.input is None:
        parser.error("give --text or -i")
    return args


def main(started: float) -> int:
    args = parse()
    if args.list:
        return list_available(args.json)

    from common.cli.speak import Writer, read_phrases, speak_phrases

    phrases = read_phrases(args.text, args.input)
    if args.show_text:
        return show_text(args, phrases)
    controls = options.controls_from(args)
    writer = Writer(args.output, phrases, args.save_mel, args.plot)
    if args.json and writer.to_stdout:
        raise InputError("--json and -o - both write to stdout: give -o a file")
    tts = options.load_from(args)
    if args.warm_up:
        several = len(phrases) > 1 and tts.choose_batch_size(args.batch_size)
        options.warm_up(tts, several or args.batch_size)
    records, failures = speak_phrases(
        tts,
        phrases,
        writer,
        controls,
        batch_size=args.batch_size,
        retries=args.retry,
        strict=args.strict,
        quiet=args.json or writer.to_stdout,
    )
    if args.json:
        content = {"phrases": records, "load": tts.load_timings.stages, "buckets": tts.bucket_report()}
        print(json.dumps(content, indent=1, ensure_ascii=False))
    if args.timing:
        show_timing(tts, records, time.perf_counter() - started)
    return options.USER_ERROR if failures else 0


if __name__ == "__main__":
    started = time.perf_counter()
    run.run(lambda: main(started))
