"""The verify command, shared by `melforge verify` and every model's verify_trt module."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from melforge.common.cli import options, run
from melforge.common.errors import InputError, require_torch
from melforge.common.files import require_writable_file, require_writable_folder
from melforge.common.registry import KIND_WORDS, get_model
from melforge.common.stages.choose import KINDS

if TYPE_CHECKING:
    from melforge.common.recognition.listener import Listener

TEXT = "It just works."
# of three words one misheard is a third; this the shipped ear hears from every pair of the shipped voice
HEARD_TEXT = "Every word of this sentence should be heard as it is spoken."
EPILOG = """The exit status is 1 if anything is out of tolerance; the first layer that went wrong is named.
docs/verify.md says what is compared, and why the tolerances are what they are."""


def main(argv: Sequence[str] | None = None, model: str | None = None) -> int:
    """Compares a pair of models, or one model, on ONNX Runtime or TensorRT with PyTorch."""
    parser = make_parser(model)
    args = parser.parse_args(argv)

    for path in (Path(name) for name in (args.json, args.plot) if name and name != "-"):
        if path.parent.is_dir():
            require_writable_file(path)
        else:  # which is made
            require_writable_folder(path.parent)
    if args.output:
        require_writable_folder(Path(args.output))
    require_torch("comparing with PyTorch")
    from melforge.common.audio.sound_files import encode_audio
    from melforge.common.files import write_bytes
    from melforge.common.verify import report
    from melforge.common.verify.stages import verify

    listener = options.listener_from(args)
    sources, setups = prepare(args, model)
    spoken = args.text if args.text is not None else HEARD_TEXT if listener else TEXT
    found = verify(spoken, sources, setups, args.decoder)
    heard = listen(listener, found.speech)
    if args.json != "-":
        for setup in found.setups:
            print(
                f"{setup.source.model}: PyTorch and {setup.backend} in {setup.precision}, on {setup.device}"
            )
        run.print_table(report.HEADINGS, map(report.row_of, found.comparisons))
        print("\n".join([*report.conclusion(found), *heard.values()]))
    files = {args.plot: report.draw(found)} if args.plot else {}
    if args.json:
        text = json.dumps(found.report() | ({"heard": heard} if heard else {}), indent=1) + "\n"
        if args.json == "-":
            sys.stdout.write(text)
        else:
            files[args.json] = text.encode()
    for name, audio in (("pytorch", found.speech.wanted), ("other", found.speech.got)) if args.output else ():
        files[f"{args.output}/{name}.wav"] = encode_audio(audio.samples, audio.sampling_rate)
    for name, content in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        write_bytes(Path(name), content)
    return 0 if found.ok and (listener is None or listener.ok) else 1


def listen(listener: Listener | None, speech: Any) -> dict[str, str]:
    """A sentence on what is heard of each side's speech; the other side's decides."""
    if listener is None:
        return {}
    heard = {}
    for side, audio in (("PyTorch", speech.wanted), ("the other", speech.got)):
        listener.pairs.clear()
        details = listener.listen(audio).describe()
        heard[side] = f"{side}: {listener.summary()}" + (f" ({details})" if details else "")
    return heard


def make_parser(model: str | None) -> options.Parser:
    kinds = (get_model(model).kind,) if model else ("acoustic", "vocoder")
    default = "trt" if model else "onnx"
    parser = options.Parser(
        description=f"Compares {model or 'two models'} on another backend with PyTorch: the layers, the "
        "stages, and a sentence spoken by both.",
        epilog=EPILOG,
        kinds=kinds,
        choose=(lambda args: [model]) if model else None,
        files_of=model,
    )
    what = f"what is spoken (default: {TEXT!r}, with --listen {HEARD_TEXT!r})"
    parser.add_argument("--text", help=what)
    for kind in KINDS:
        if kind not in kinds:
            words = f"the {KIND_WORDS[kind]} beside it, on PyTorch (default: the voice's)"
            options.add_options(parser, kind, **{kind: words})
        elif not model:
            options.add_options(parser, kind)
    options.add_options(parser, "voice", "checkpoint")
    backends = "what is compared with PyTorch, onnx or trt, and kernels of stages as in trt,decoder_loop=cuda"
    backends += f" (default: {default}, or what files say)"
    options.add_options(parser, "backend", default=default, backend=backends)
    options.add_options(parser, "precision", "device", "threads")
    options.add_decoder_argument(parser, "the backend's")
    add, again = parser.add_argument, {"action": "append", "default": []}
    text = "which layers, such as 'encoder.layers.0.*' (default: the model's list); may be repeated"
    add("--layers", metavar="PATTERN", help=text, **again)
    text = "of each stage that are compared, such as a decoder's steps (default: 40)"
    add("--calls", type=options.positive, default=40, metavar="N", help=text)
    add("--trt_force_build", "--trt-force-build", action="store_true", help="build engines again")
    text = "negate the largest value of this weight on the other side: shows that it is found"
    add("--perturb", metavar="WEIGHT", help=text)
    options.add_options(parser, "listen", "listen-limit")
    add("--full", action="store_true", help="print every tensor, difference and error count")
    add("--json", metavar="FILE", help="write a report; - for stdout, without the table")
    add("--plot", metavar="PNG", help="draw the error over the layers, and both mels")
    add("-o", "--output", metavar="FOLDER", help="write both sounds: pytorch.wav and other.wav")
    return parser


def prepare(args: argparse.Namespace, model: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """The sources by kind, and the setups of what is compared."""
    from melforge.common.engines.tensorrt.engine_file import needed_stages
    from melforge.common.export.to_onnx import with_graphs
    from melforge.common.stages import plan_of
    from melforge.common.stages.choose import deployment_of, pads_masked, parse_backends
    from melforge.common.synthesis.loading import choose_sources, pick_device, require_kernels
    from melforge.common.verify.report import full
    from melforge.common.verify.stages import Setup, perturb_one, share_layers

    wanted = {kind: getattr(args, kind, None) for kind in KINDS}
    if model:
        wanted[get_model(model).kind] = model
    sources = choose_sources(wanted, args.voice, args.checkpoint, args.overrides)
    names = {kind: source.model for kind, source in sources.items()}
    compared = [kind for kind in KINDS if not model or names[kind] == model]
    backends = parse_backends(args.backend, {kind: names[kind] for kind in compared})
    if "torch" in backends.values():
        raise InputError("--backend torch: PyTorch is what the others are compared with; give onnx or trt")
    if others := sorted({*backends.values()} - {"onnx", "trt"}):
        raise InputError(
            f"--backend {others[0]}: onnx or trt is compared, and kernels of single stages that are named "
            "beside it, as in trt,generator=cuda"
        )
    devices = {pick_device(b) if args.device == "auto" else args.device for b in backends.values()}
    if len(devices) > 1:  # both sides are on one
        devices = {"cuda"}
    (device,) = devices
    if args.precision == "fp16" and "trt" not in backends.values():
        raise InputError("--precision: precision is for the backend trt: add --backend trt, or leave it out")
    if "trt" in backends.values():
        from melforge.common.engines.tensorrt.api import load_tensorrt
        from melforge.common.engines.tensorrt.engine import require_gpu

        load_tensorrt()
        require_gpu(device)
    setups = {}
    for kind in compared:
        deployment = deployment_of(names[kind], args.deployments, args.backend)
        if args.precision and backends[kind] == "trt":
            deployment = replace(deployment, precision=args.precision)
        if deployment.kernels:
            require_kernels(sources[kind], deployment.kernels, device)
        # Both sides must pad in the same way, and where weights came from decides it.
        masked = pads_masked(sources[kind], deployment)
        anew = deployment.trt_force_build or args.trt_force_build
        deployment = replace(deployment, mask_padding=masked, trt_force_build=anew)
        form = args.decoder if kind == "acoustic" else None
        stages = needed_stages(sources[kind], deployment, form, backend=backends[kind])
        patterns = tuple(args.layers) or plan_of(names[kind]).layers
        how = {"asked": bool(args.layers), "threads": args.threads, "calls": args.calls}
        how["watch"] = full if args.full else None
        source = with_graphs(sources[kind], stages)
        setups[kind] = Setup(source, backends[kind], device, deployment, patterns, **how)
    if args.layers:
        share_layers(setups)
    if args.perturb:
        perturb_one(setups, args.perturb)
    return sources, setups
