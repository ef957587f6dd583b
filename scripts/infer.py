"""Speaks text: one sentence, a file of phrases, or standard input, to sound files or standard output."""

from __future__ import annotations

import argparse
import json
import sys
import time

from common import cli

RETRIES = 2
EPILOG = """examples:
  infer.py --text "Hello there." -o hello.wav
  infer.py -i phrases.txt -o spoken/ --pace 0.9 --timing       # spoken/1.wav, spoken/2.wav, ...
  infer.py --acoustic tacotron2 --text "Hello there." --retry --plot attention.png
  echo "Hello there." | infer.py -i - -o - | aplay
"""


def parse() -> argparse.Namespace:
    parser = cli.Parser(
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
    cli.add_model_arguments(parser)
    cli.add_control_arguments(parser)
    more = parser.add_argument_group("more")
    more.add_argument("--show-text", action="store_true", help="print what would be spoken, without speaking")
    more.add_argument("--strict", action="store_true", help="a symbol that cannot be spoken is an error")
    more.add_argument(
        "--retry",
        nargs="?",
        type=cli.not_negative,
        const=RETRIES,
        default=0,
        metavar="N",
        help="what went wrong is spoken again, with N other seeds and then in pieces "
        f"(default: 0; without N: {RETRIES})",
    )
    more.add_argument(
        "--batch-size", type=cli.positive, metavar="N", help="utterances at a time (default: 8)"
    )
    more.add_argument("--save-mel", action="store_true", help="also save each mel as .npy beside its sound")
    more.add_argument("--plot", metavar="PNG", help="draw mel, attention and pitch (many phrases: a folder)")
    more.add_argument("--warm-up", action="store_true", help=cli.WARM_UP_HELP)
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

    from common.batch import Writer, read_phrases, speak_phrases

    phrases = read_phrases(args.text, args.input)
    if args.show_text:
        return show_text(args, phrases)
    controls = cli.controls_from(args)
    writer = Writer(args.output, phrases, args.save_mel, args.plot)
    if args.json and writer.to_stdout:
        raise ValueError("--json and -o - both write to stdout: give -o a file")
    tts = cli.load_from(args)
    if args.warm_up:
        several = len(phrases) > 1 and tts.choose_batch_size(args.batch_size)
        cli.warm_up(tts, several or args.batch_size)
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
    return cli.USER_ERROR if failures else 0


def show_text(args: argparse.Namespace, phrases) -> int:
    from common.batch import describe_unspoken
    from common.loading import choose_sources

    wanted = {"acoustic": args.acoustic, "vocoder": args.vocoder}
    frontend = choose_sources(wanted, args.voice, args.checkpoint)["acoustic"].frontend.build()
    shown, unspoken = [], []
    for phrase in phrases:
        analysis = frontend(phrase.text)
        unspoken += describe_unspoken(phrase, analysis.unspoken)
        shown.append(
            {
                "name": phrase.name,
                "utterances": [
                    {"normalised": u.normalised, "symbols": list(u.symbols), "pause": u.pause}
                    for u in analysis.utterances
                ],
                "unspoken": [{"symbol": u.symbol, "position": u.position} for u in analysis.unspoken],
            }
        )
    if args.json:
        print(json.dumps(shown, indent=1, ensure_ascii=False))
    else:
        for entry in shown:
            for utterance in entry["utterances"]:
                print(f"{utterance['normalised']}\n    {readable(utterance['symbols'])}")
    for line in unspoken:
        print(("error: " if args.strict else "warning: ") + line, file=sys.stderr)
    return cli.USER_ERROR if args.strict and unspoken else 0


def readable(symbols: list[str]) -> str:
    """Phonemes of a word joined by dashes, letters as they are."""
    shown = ""
    for symbol in symbols:
        phone = symbol.startswith("@")
        shown += ("-" if phone and shown[-1:].isalnum() else "") + symbol.removeprefix("@")
    return shown.strip()


def show_timing(tts, records: list[dict], total: float) -> None:
    rows = [(f"load {name}", f"{seconds * 1e3:.1f}") for name, seconds in tts.load_timings.stages.items()]
    summed: dict[str, float] = {}
    for record in records:
        for name, value in record["timings"].items():
            summed[name] = summed.get(name, 0.0) + value
    audio, work = summed.pop("audio_s", 0.0), summed.pop("total_s", 0.0)
    first = records[0]["timings"]["first_audio_s"] if records else 0.0
    rows += [
        (name.removesuffix("_s"), f"{seconds * 1e3:.1f}")
        for name, seconds in summed.items()
        if name not in ("rtf", "first_audio_s")
    ]
    rows += [("time to first audio", f"{first * 1e3:.1f}"), ("whole process", f"{total * 1e3:.1f}")]
    cli.print_table(("stage", "ms"), rows, file=sys.stderr)
    speed = f"{audio / work:.1f} times real time" if work else "nothing spoken"
    print(f"{audio:.2f} s of audio, {speed} from text to samples", file=sys.stderr)
    show_buckets(tts.bucket_report())


def show_buckets(uses: list[dict]) -> None:
    """What each bucket was used for, where there are buckets."""
    rows = [
        (
            use["stage"] + ("" if use["masked"] else " (unmasked)"),
            use["bucket"],
            str(use["calls"]),
            f"{100 * use['waste']:.1f}",
            str(use["misses"]),
            ("yes" if use["loaded"] else "no") + (f", {use['loads']} times" if use["loads"] > 1 else ""),
        )
        for use in uses
    ]
    if rows:
        print(file=sys.stderr)
        cli.print_table(("stage", "bucket", "calls", "waste %", "misses", "loaded"), rows, file=sys.stderr)


def list_available(as_json: bool) -> int:
    from common.cache import list_built
    from common.engines import BACKENDS
    from common.registry import MODELS
    from common.voices import list_voices, load_voice

    voices = [load_voice(name) for name in list_voices()]
    built = list_built(voices)
    if as_json:
        content = {
            "voices": [
                {"name": v.name, "description": v.description, "models": list(v.models)} for v in voices
            ],
            "models": {model.name: model.kind for model in MODELS.values()},
            "backends": list(BACKENDS),
            "built": [
                {
                    "kind": one.kind,
                    "model": one.model,
                    "part": one.part,
                    "owner": one.owner,
                    "file": str(one.file),
                    "mb": round(one.megabytes, 3),
                }
                for one in built
            ],
        }
        print(json.dumps(content, indent=1, ensure_ascii=False))
        return 0
    rows = [("voice", voice.name, voice.description or ", ".join(voice.models)) for voice in voices]
    rows += [(model.kind, model.name, "") for model in MODELS.values()]
    rows += [("backend", name, "") for name in BACKENDS]
    cli.print_table(("kind", "name", ""), rows)
    print()
    rows = [(f"{one.model}.{one.part}", one.kind, one.owner, f"{one.megabytes:.2f}") for one in built]
    cli.print_table(("built", "kind", "of", "MB"), rows)
    return 0


if __name__ == "__main__":
    started = time.perf_counter()
    cli.run(lambda: main(started))
