"""Speaks text: one sentence, a file of phrases, or standard input, to sound files or standard output."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from melforge.common.cli import STARTED, bulk, options, run
from melforge.common.cli.list import list_available
from melforge.common.cli.phrases import (
    SINGLE,
    Phrase,
    Writer,
    describe_unspoken,
    from_phonemes,
    read_phrases,
    speak_phrases,
    warn_of_languages,
)
from melforge.common.errors import InputError
from melforge.common.files import is_file
from melforge.common.remote import is_address
from melforge.common.speech import speaker_name
from melforge.common.stages.choose import KINDS
from melforge.common.synthesis.places import is_several
from melforge.common.text import spoken_by, unspoken_rows
from melforge.common.text.markup import PlainText, analyse, linked, require_ssml

RETRIES = 2
EPILOG = """examples:
  %(prog)s "Hello there." -o hello.wav
  %(prog)s -i chapter.txt -o chapter.mp3                       # the whole file
  %(prog)s -i phrases.txt -o spoken/ --pace 0.9 --timing       # a phrase a line: spoken/1.wav, 2.wav, ...
  %(prog)s --acoustic tacotron2 --text "Hello there." --retry --plot attention.png
  %(prog)s -i texts.parquet -o spoken/ --format flac           # in shards; goes on where it was killed
  echo "Hello there." | %(prog)s -i - -o - | aplay
"""


OPTIONS = f"""
text:
  --text TEXT        what to speak
  words [TEXT]       the same, without --text
  -i, --input TEXTS  .txt with a phrase a line (line N makes N.wav; lines that begin with "# " are left out),
        .tsv with name and text, - for stdin; the lines of .txt and stdin are one text where -o is - or one
        sound file, those of .md, .html and .ssml always; a table: below
  -o, --output OUT   sound file (.wav .flac .ogg .mp3 .opus .aac), folder, or - for wav on stdout
        (default: speech.wav; for many phrases: the folder speech)
{options.MODEL_OPTIONS}{options.CONTROLS}{bulk.OPTIONS}
more:
  lexicon phonemes links
  --ssml             the text is SSML, of a file the whole; without this, a text that begins with <speak> is
  --plain            read the text as it is written, also tags and marks such as [pause:0.5s]
  --show-text        print what would be spoken, without speaking
  --strict           a symbol that cannot be spoken is an error
  --retry [N0]=0     what went wrong is spoken again, with N other seeds and then in pieces; with --listen
        also texts of which words are left out or said twice (without N: {RETRIES})
  --batch-size N     utterances at a time (default: 8)
  --save-mel         also save each mel as .npy beside its sound
  --plot FILE        draw mel, attention and pitch, a PNG (many phrases: a folder)
  --subtitles FILE...   write when each word is spoken: FILE.srt, .vtt or .json (also phonemes), or only srt,
        vtt or json: a file beside each sound; may be repeated
  listen listen-limit warm-up
  --timing           print what the time went to, on stderr
  --json             print what was made, as JSON on stdout
  --list             list voices, models, backends and what is built
"""


def make_parser() -> options.Parser:
    parser = options.make_parser(OPTIONS, description=__doc__, epilog=EPILOG, kinds=KINDS)
    parser.exclude("text", "words", "input")
    parser.exclude("ssml", "plain")
    return parser


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = make_parser()
    args = parser.parse_args(argv)
    args.retry = RETRIES if args.retry == "" else args.retry
    if args.words and is_file(args.words):
        raise InputError(
            f"{args.words} is a file: give -i {args.words} to speak its lines, or --text {args.words}"
        )
    args.text = args.words if args.text is None else args.text
    if not args.list and args.text is None and args.input is None:
        parser.error("give --text or -i")
    return args


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(argv)
    if args.list:
        return list_available(args.json, args.voice)
    if bulk.is_table(args):
        return bulk.speak_table(args)
    if is_several(args.device, args.workers_per_gpu):
        raise InputError("--workers-per-gpu and several devices are for tables of texts: give --format too")
    bulk.require_no_table(args)
    for place, flag in ((args.input, "-i"), (args.output, "-o")):
        if is_address(place):
            raise InputError(f"{flag} {place}: only tables are read and written there; give --format")

    whole = args.ssml or (args.input, args.output) == ("-", "-")  # other programs pass a text on so
    if args.text is not None:
        phrases = [Phrase(SINGLE, args.text, "")]
    else:
        phrases = read_phrases(args.input, whole, args.output)
    phrases = from_phonemes(phrases, args.phonemes)
    if args.ssml:
        for phrase in phrases:
            require_ssml(phrase.text)
    if args.plain:
        phrases = [replace(phrase, text=PlainText(phrase.text)) for phrase in phrases]
    if args.links == "addresses":
        phrases = [replace(phrase, text=linked(phrase.text)) for phrase in phrases]
    if args.show_text:
        return show_text(args, phrases)
    controls = options.controls_from(args)
    writer = Writer(args.output, phrases, args.save_mel, args.plot, args.subtitles)
    if args.json and writer.to_stdout:
        raise InputError("--json and -o - both write to stdout: give -o a file")
    listener = options.listener_from(args)
    tts = options.load_from(args)
    if args.warm_up:
        size = tts.choose_batch_size(args.batch_size) if len(phrases) > 1 else args.batch_size
        options.warm_up(tts, *([size] if size else []))
    records, failures = speak_phrases(tts, phrases, writer, controls, args, listener)
    if args.json:
        content = {"phrases": records, "load": tts.load_timings.stages, "buckets": tts.bucket_report()}
        print(json.dumps(content, indent=1, ensure_ascii=False))
    if args.timing:
        show_timing(tts, records, time.perf_counter() - STARTED)
    if listener:
        print(listener.summary(), file=sys.stderr)
    return run.USER_ERROR if failures else int(listener is not None and not listener.ok)


def show_text(args: argparse.Namespace, phrases) -> int:
    from melforge.common.synthesis.loading import choose_sources

    wanted = {"acoustic": args.acoustic, "vocoder": args.vocoder}
    source = choose_sources(wanted, args.voice, args.checkpoint, lexicon=args.lexicon)["acoustic"]
    speaker = speaker_name(options.controls_from(args).speaker, source.speakers)
    frontend = spoken_by(source.build_frontend(), speaker)
    shown, unspoken = [], []
    warn_of_languages(phrases)
    for phrase in phrases:
        analysis = analyse(frontend, phrase.text)
        unspoken += describe_unspoken(phrase, analysis.unspoken)
        utterances = [
            {"normalised": u.normalised, "symbols": list(u.symbols), "pause": u.pause}
            for u in analysis.utterances
        ]
        unspoken += analysis.warnings
        left_out = unspoken_rows(analysis.unspoken)
        shown.append({"name": phrase.name, "utterances": utterances, "unspoken": left_out})
    if args.json:
        print(json.dumps(shown, indent=1, ensure_ascii=False))
    else:
        for utterance in (utterance for entry in shown for utterance in entry["utterances"]):
            print(f"{utterance['normalised']}\n    {readable(utterance['symbols'])}")
    for line in unspoken:
        print(("error: " if args.strict else "warning: ") + line, file=sys.stderr)
    return run.USER_ERROR if args.strict and unspoken else 0


def readable(symbols: list[str]) -> str:
    """Phonemes of a word joined by dashes, letters as they are."""
    shown = ""
    for symbol in symbols:
        phone = symbol.startswith("@")
        shown += ("-" if phone and shown[-1:].isalnum() else "") + symbol.removeprefix("@")
    return shown.strip()


def show_timing(tts, records: list[dict], total: float) -> None:
    summed: Counter[str] = Counter()
    for record in records:
        summed.update(record["timings"])
    audio, work, _, _ = (summed.pop(name, 0.0) for name in ("audio_s", "total_s", "rtf", "first_audio_s"))
    seconds = {f"load {name}": value for name, value in tts.load_timings.stages.items()}
    seconds.update((name.removesuffix("_s"), value) for name, value in summed.items())
    seconds["time to first audio"] = records[0]["timings"]["first_audio_s"] if records else 0.0
    seconds["whole process"] = total
    rows = [(name, f"{value * 1e3:.1f}") for name, value in seconds.items()]
    run.print_table(("stage", "ms"), rows, file=sys.stderr)
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
        run.print_table(("stage", "bucket", "calls", "waste %", "misses", "loaded"), rows, file=sys.stderr)
