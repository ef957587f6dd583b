"""The verify command: `melforge verify`, and every model's verify_trt module."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from melforge.common.cli import options, run
from melforge.common.cli.option import local
from melforge.common.config.deployment import Deployment
from melforge.common.errors import InputError, require_torch
from melforge.common.files import require_png, require_writable_file, require_writable_folder
from melforge.common.registry import KIND_WORDS, get_model
from melforge.common.stages.choose import KINDS

if TYPE_CHECKING:
    import numpy as np

    from melforge.common.recognition.listener import Listener
    from melforge.common.speech import Controls
    from melforge.common.verify.compare import SpeechComparison
    from melforge.common.verify.stages import Setup
    from melforge.common.verify.verification import Verification
    from melforge.common.weights.voices import ModelSource

TEXT = "It just works."
# of three words one misheard is a third; this the shipped ear hears from every pair of the shipped voice
HEARD_TEXT = "Every word of this sentence should be heard as it is spoken."
STEPS = 60  # of a decoder with random weights, which stops at any time
EPILOG = """The exit status is 1 if anything is out of tolerance; the first layer that went wrong is named.
docs/verify.md says what is compared, and why the tolerances are what they are."""


def main(argv: Sequence[str] | None = None, model: str | None = None) -> int:
    """Compares a pair of models, or one model, on ONNX Runtime, TensorRT or kernels with PyTorch."""
    hears = model is not None and get_model(model).kind == "recogniser"
    parser = make_recogniser_parser(model) if hears and model else make_parser(model)
    args = parser.parse_args(argv)
    plot, output = getattr(args, "plot", None), getattr(args, "output", None)

    for path in (Path(name) for name in (args.json, plot) if name and name != "-"):
        if hears or path.parent.is_dir():
            require_writable_file(path)
        else:  # which is made
            require_writable_folder(path.parent)
    if plot:
        require_png(Path(plot))
    if output:
        require_writable_folder(Path(output))
    require_torch("comparing with PyTorch")
    from melforge.common.verify import report

    files: dict[str, bytes] = {}
    heard: dict[str, str] = {}
    listener = None
    if hears and model:
        found = verify_recordings(args, model)
    else:
        from melforge.common.audio.sound_files import encode_audio
        from melforge.common.verify.verification import verify

        listener = options.listener_from(args)
        sources, setups, controls = prepare(args, model)
        spoken = args.text if args.text is not None else HEARD_TEXT if listener else TEXT
        found = verify(spoken, sources, setups, args.decoder, controls)
        heard = listen(listener, found.speech)
        if plot:
            files[plot] = report.draw(found)
        for name, audio in (("pytorch", found.speech.wanted), ("other", found.speech.got)):
            if output:
                files[f"{output}/{name}.wav"] = encode_audio(audio.samples, audio.sampling_rate)
    write(args.json, found, heard, files)
    return 0 if found.ok and (listener is None or listener.ok) else 1


def write(json_to: str | None, found: Verification, heard: dict[str, str], files: dict[str, bytes]) -> None:
    """Prints the table, or the JSON, and writes the files."""
    from melforge.common.files import write_files
    from melforge.common.verify import report

    if json_to != "-":
        for setup in found.setups:
            name = setup.source.model
            print(f"{name}: PyTorch and {setup.backend} in {setup.precision}, on {setup.device}")
        run.print_table(report.HEADINGS, map(report.row_of, found.comparisons))
        print("\n".join([*report.conclusion(found), *heard.values()]))
    if json_to:
        text = json.dumps(found.report() | ({"heard": heard} if heard else {}), indent=1) + "\n"
        if json_to == "-":
            sys.stdout.write(text)
        else:
            files[json_to] = text.encode()
    for name in files:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
    write_files({Path(name): content for name, content in files.items()})


def tell(text: str) -> None:
    """What is compared now, on a terminal: exporting graphs and building engines take minutes."""
    if sys.stderr.isatty():
        print(f"comparing {text}", file=sys.stderr, flush=True)


def listen(listener: Listener | None, speech: SpeechComparison) -> dict[str, str]:
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
    add = parser.add_argument
    add("--text", help=f"what is spoken (default: {TEXT!r}, with --listen {HEARD_TEXT!r})")
    for kind in KINDS:
        if kind not in kinds:
            words = f"the {KIND_WORDS[kind]} beside it, on PyTorch (default: the voice's)"
            options.add_options(parser, kind, **{kind: words})
        elif not model:
            options.add_options(parser, kind)
    options.add_options(parser, "voice", "checkpoint")
    if model:
        text = "a network of the published sizes with random weights, instead of the voice's"
        add("--published", action="store_true", help=text)
    backends = (
        "what is compared with PyTorch: onnx, trt or cuda; of single stages as in trt,decoder_loop=cuda"
    )
    backends += f" (default: {default}, or what files say)"
    options.add_options(parser, "backend", default=default, backend=backends)
    options.add_options(parser, "precision", "device", "threads")
    options.add_decoder_argument(parser, "the backend's")
    add_comparison_options(parser)
    text = "of each stage that are compared, such as a decoder's steps (default: 40)"
    add("--calls", type=options.positive, default=40, metavar="N", help=text)
    add("--trt_force_build", "--trt-force-build", action="store_true", help="build engines again")
    options.add_options(parser, "listen", "listen-limit")
    add("--full", action="store_true", help="print every tensor, difference and error count")
    add("--plot", type=local, metavar="PNG", help="draw the error over the layers, and both mels")
    add("-o", "--output", type=local, metavar="FOLDER", help="write both sounds: pytorch.wav and other.wav")
    return parser


def make_recogniser_parser(model: str) -> options.Parser:
    parser = options.Parser(
        description=f"Compares {model} on another backend with PyTorch: the layers, the stages, and what is "
        "heard in recordings.",
        epilog=EPILOG,
        kinds=("recogniser",),
        choose=lambda args: [model],
        files_of=model,
    )
    what = f"sound files at any rate (default: the shipped voice says {TEXT!r})"
    parser.add_argument("inputs", nargs="*", default=[], type=Path, metavar="FILE", help=what)
    options.add_options(parser, "ear", "checkpoint", "backend", default=None)
    options.add_options(parser, "precision", "device", "threads")
    add_comparison_options(parser)
    return parser


def add_comparison_options(parser: options.Parser) -> None:
    again: dict[str, Any] = {"action": "append", "default": []}
    text = "which layers, such as 'encoder.layers.0.*' (default: the model's list); may be repeated"
    parser.add_argument("--layers", metavar="PATTERN", help=text, **again)
    text = "negate the largest value of this weight on the other side: shows that it is found"
    parser.add_argument("--perturb", metavar="WEIGHT", help=text)
    text = "write a report; - for stdout, without the table"
    parser.add_argument("--json", type=local, metavar="FILE", help=text)


def prepare(
    args: argparse.Namespace, model: str | None
) -> tuple[dict[str, ModelSource], dict[str, Setup], Controls | None]:
    """The sources by kind, the setups of what is compared, and how the text is spoken."""
    from melforge.common.speech import Controls
    from melforge.common.stages.choose import deployment_of, parse_backends
    from melforge.common.synthesis.loading import choose_sources
    from melforge.common.verify.stages import perturb_one, share_layers

    wanted = {kind: getattr(args, kind, None) for kind in KINDS}
    if model and not args.published:
        wanted[get_model(model).kind] = model
    sources = choose_sources(wanted, args.voice, args.checkpoint, args.overrides)
    controls = None
    if model and args.published:
        from melforge.common.bench.random_weights import lasting, random_source

        sizes = args.overrides.get(model)
        sources[get_model(model).kind] = lasting(random_source(model, sizes=sizes))
        if "steps" in get_model(model).decoders:
            args.decoder = args.decoder or "steps"
            controls = Controls(step_limit=STEPS, gate_threshold=1.0)
    names = {kind: source.model for kind, source in sources.items()}
    compared = [kind for kind in KINDS if not model or names[kind] == model]
    backends = parse_backends(args.backend, {kind: names[kind] for kind in compared})
    device = place_of(args, backends.values())
    if args.precision == "fp16" and "trt" not in backends.values():
        raise InputError("--precision: precision is for the backend trt: add --backend trt, or leave it out")
    setups = {}
    for kind in compared:
        deployment = deployment_of(names[kind], args.deployments, args.backend)
        anew = deployment.trt_force_build or args.trt_force_build
        deployment = replace(deployment, trt_force_build=anew)
        form = args.decoder if kind == "acoustic" else None
        setups[kind] = setup_of(args, sources[kind], backends[kind], device, deployment, form)
    if args.layers:
        share_layers(setups)
    if args.perturb:
        perturb_one(setups, args.perturb)
    return sources, setups, controls


def place_of(args: argparse.Namespace, backends: Any) -> str:
    """The one device of both sides. An InputError where a backend is not compared, or not there."""
    from melforge.common.synthesis.loading import pick_device

    if "torch" in backends:
        raise InputError(
            "--backend torch: PyTorch is what the others are compared with; give onnx, trt or cuda"
        )
    devices = {pick_device(b) if args.device == "auto" else args.device for b in backends}
    device = devices.pop() if len(devices) == 1 else "cuda"
    if "trt" in backends:
        from melforge.common.engines.tensorrt.api import load_tensorrt
        from melforge.common.engines.tensorrt.engine import require_gpu

        load_tensorrt()
        require_gpu(device)
    return device


def setup_of(
    args: argparse.Namespace,
    source: ModelSource,
    backend: str,
    device: str,
    deployment: Deployment,
    form: str | None,
) -> Setup:
    """What one model is compared on; graphs that are missing are exported."""
    from melforge.common.engines.tensorrt.engine_file import needed_stages
    from melforge.common.export.to_onnx import with_graphs
    from melforge.common.stages import plan_of
    from melforge.common.stages.choose import KERNELS, kernel_stages, pads_masked
    from melforge.common.synthesis.loading import require_kernels
    from melforge.common.verify.report import full
    from melforge.common.verify.stages import CALLS, Setup

    if args.precision and backend == "trt":
        deployment = replace(deployment, precision=args.precision)
    if get_model(source.model).kind in KINDS:
        # Both sides must pad in the same way, and where weights came from decides it.
        deployment = replace(deployment, mask_padding=pads_masked(source, deployment))
    if backend == KERNELS:
        deployment = replace(deployment, kernels=kernel_stages(source.model))
    if deployment.kernels:
        require_kernels(source, deployment.kernels, device)
    tell(f"{source.model}: its graphs are read, or exported")
    stages = needed_stages(source, deployment, form, backend=backend)
    return Setup(
        with_graphs(source, stages),
        backend,
        device,
        deployment,
        tuple(args.layers) or plan_of(source.model).layers,
        asked=bool(args.layers),
        threads=args.threads,
        calls=getattr(args, "calls", CALLS),
        watch=full if getattr(args, "full", False) else None,
        tell=tell,
    )


def verify_recordings(args: argparse.Namespace, model: str) -> Verification:
    """A recogniser on both sides, hearing sound files or a sentence of the shipped voice."""
    from melforge.common.recognition.loading import form_of
    from melforge.common.synthesis.loading import override
    from melforge.common.verify.stages import perturb_one
    from melforge.common.verify.verification import verify_recogniser
    from melforge.common.weights.ears import stored_source
    from melforge.common.weights.published import read_checkpoints

    published = read_checkpoints(args.checkpoint, [model])
    source = published[0] if published else stored_source(model, None, args.ear)
    source = override(source, args.overrides.get(model, {}))
    backend = args.backend or "trt"
    device = place_of(args, [backend])
    deployment = args.deployments.get(model, Deployment())
    setup = setup_of(args, source, backend, device, deployment, form_of(source))
    if args.perturb:
        perturb_one({"recogniser": setup}, args.perturb)
    found = verify_recogniser(source, setup, recordings(args, source.config.sampling_rate))
    if not found.texts:
        raise InputError("nothing could be compared: nothing can be heard in the recordings")
    return found


def recordings(args: argparse.Namespace, rate: int) -> list[np.ndarray]:
    """The sound files, or a sentence spoken by the shipped voice, at the recogniser's rate."""
    from melforge.common.audio.sound_files import read_audio, resample
    from melforge.common.runner import TextToSpeech

    if args.inputs:
        return [resample(*read_audio(path), rate) for path in args.inputs]
    spoken = TextToSpeech.load(device="cpu").speak(TEXT)
    return [resample(spoken.samples, spoken.sampling_rate, rate)]
