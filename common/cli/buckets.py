"""Proposes bucket lists for texts: those that waste the least padding on them. Speaks nothing."""

import json
from collections.abc import Sequence

from melforge.common.cli import options
from melforge.common.stages.choose import KINDS

EPILOG = """examples:
  %(prog)s -i texts.txt --count 4
  %(prog)s -i texts.txt --acoustic tacotron2 --json
"""


OPTIONS = f"""
  -i, --input FILE!   .txt with a text a line, or .tsv; - is stdin
  --count N=4         buckets at most
  batch-size lexicon
  --json              print the proposal as JSON
{options.MODEL_OPTIONS}{options.CONTROLS}"""


def main(argv: Sequence[str] | None = None) -> int:
    args = options.make_parser(OPTIONS, description=__doc__, epilog=EPILOG, kinds=KINDS).parse_args(argv)

    from melforge.common.cli.phrases import read_phrases
    from melforge.common.synthesis.bucket_lists import predict_lengths, propose

    phrases = read_phrases(args.input)
    controls = options.controls_from(args)
    tts = options.load_from(args)
    tts.require_controls(controls)
    utterances = [u for phrase in phrases for u in tts.analyse(phrase.text).utterances]
    batch_size = tts.choose_batch_size(args.batch_size)
    symbols, frames = predict_lengths(tts.acoustic, utterances, controls, batch_size)
    # A longer mel is made of pieces.
    frames = frames.clip(max=tts.acoustic.longest_mel)
    proposal, single = propose(symbols, frames, args.count), propose(symbols, frames, 1)
    texts, mels = ([getattr(bucket, kind) for bucket in proposal.buckets] for kind in ("text", "mel"))
    keys = {"trt_max_input_seq_len_list": texts, "trt_max_output_seq_len_list": mels}
    if args.json:
        alone = {"bucket": str(single.buckets[0]), "waste": single.waste}
        content = {"utterances": len(utterances), **keys, "waste": proposal.waste, "single_bucket": alone}
        print(json.dumps(content, indent=1))
        return 0
    print(
        f"# {len(utterances)} utterances of {symbols.min()} to {symbols.max()} symbols and "
        f"{frames.min()} to {frames.max()} frames\n"
        f"# padding: {100 * proposal.waste:.1f} % of all steps; with the one bucket {single.buckets[0]} "
        f"{100 * single.waste:.1f} %\n"
        "trt_multi_engine: true\n"
        f"trt_max_input_seq_len_list: {texts}  # symbols\n"
        f"trt_max_output_seq_len_list: {mels}  # mel frames"
    )
    return 0
