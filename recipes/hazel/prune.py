"""Thins the decoder of a trained FastPitch, for a run to start from:
`python -m recipes.hazel.prune WEIGHTS --corpus DIR --layers 3 --heads 1 --filters 240 -o thin.pt`
and then `python -m melforge.fastpitch.train --init thin.pt ...` with these sizes.

The decoder has one step for each frame and takes most of a CPU's time. Kept are the layers and heads without
which the mel changes most, and the filters that add most to what their layer answers.
"""

if __name__ == "__main__":  # before PyTorch, so that it may be missing
    from melforge.common.cli import run_command

    run_command("recipes.hazel.prune")

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from tqdm import tqdm

from melforge.common.cli.options import positive
from melforge.common.cli.parser import Parser
from melforge.common.errors import InputError
from melforge.common.training.corpus.dataset import load_labels
from melforge.common.training.corpus.predict import trained_network
from melforge.common.training.loop import Ema, save_checkpoint
from melforge.common.weights.published import read_checkpoint
from melforge.fastpitch.model import FastPitch, Synthesis

EXAMPLES = 12  # utterances of the corpus by which parts are compared
PREFIX = "decoder.layers."


@dataclass(frozen=True)
class Kept:
    """Numbers of the decoder's layers that stay and, for each layer of the whole, of heads and filters."""

    layers: Sequence[int]
    heads: Mapping[int, Sequence[int]]
    filters: Mapping[int, Sequence[int]]


def whole(model: FastPitch) -> Kept:
    config = model.config
    layers = range(config.out_fft_n_layers)
    heads, filters = range(config.out_fft_n_heads), range(config.out_fft_conv1d_filter_size)
    return Kept(layers, dict.fromkeys(layers, heads), dict.fromkeys(layers, filters))


def thinned(model: FastPitch, kept: Kept) -> FastPitch:
    """The network with these parts of its decoder, in eval mode; the aligner's weights are drawn anew."""
    first = kept.layers[0]
    config = replace(
        model.config,
        out_fft_n_layers=len(kept.layers),
        out_fft_n_heads=len(kept.heads[first]),
        out_fft_conv1d_filter_size=len(kept.filters[first]),
    )
    state = {name: value for name, value in model.state_dict().items() if not name.startswith("attention.")}
    cut = {name: value for name, value in state.items() if not name.startswith(PREFIX)}
    heads_of, size = model.config.out_fft_n_heads, model.config.out_fft_d_head
    for new, old in enumerate(kept.layers):
        heads, filters = torch.tensor(kept.heads[old]), torch.tensor(kept.filters[old])
        parts = {
            "dec_attn.qkv_net.weight": lambda x, heads=heads: x.unflatten(0, (3, heads_of, size))[:, heads],
            "dec_attn.qkv_net.bias": lambda x, heads=heads: x.unflatten(0, (3, heads_of, size))[:, heads],
            "dec_attn.o_net.weight": lambda x, heads=heads: x.unflatten(1, (heads_of, size))[
                :, heads
            ].flatten(1),
            "pos_ff.CoreNet.0.weight": lambda x, filters=filters: x[filters],
            "pos_ff.CoreNet.0.bias": lambda x, filters=filters: x[filters],
            "pos_ff.CoreNet.2.weight": lambda x, filters=filters: x[:, filters],
        }
        for name, value in state.items():
            part = name.removeprefix(f"{PREFIX}{old}.")
            if part != name:
                value = parts.get(part, lambda x: x)(value)
                cut[f"{PREFIX}{new}.{part}"] = value.flatten(0, 2) if "qkv_net" in part else value
    thin = FastPitch(config)
    thin.load_state_dict(cut)
    return thin.eval()


def strongest_filters(model: FastPitch, speak: Callable[[], object], count: int) -> dict[int, list[int]]:
    """By layer the filters whose activations, times their weights in the layer's answer, vary most."""
    answers: list[torch.nn.Conv1d] = [layer.pos_ff.CoreNet[2] for layer in cast(Any, model.decoder.layers)]
    seen: list[list[Tensor]] = [[] for _ in answers]

    def note(inputs: list[Tensor], _: torch.nn.Module, given: tuple[Tensor, ...]) -> None:
        inputs.append(given[0][0])

    hooks = [
        answer.register_forward_pre_hook(partial(note, inputs))
        for answer, inputs in zip(answers, seen, strict=True)
    ]
    speak()
    for hook in hooks:
        hook.remove()
    kept = {}
    for number, (answer, inputs) in enumerate(zip(answers, seen, strict=True)):
        strength = torch.cat(inputs, dim=1).std(dim=1) * answer.weight.norm(dim=(0, 2))
        kept[number] = sorted(strength.topk(count).indices.tolist())
    return kept


@torch.no_grad()
def choose(model: FastPitch, texts: Sequence[Tensor], layers: int, heads: int, filters: int) -> Kept:
    """What to keep of the decoder so that the mels of these texts (1, N) change little."""

    def speak(network: FastPitch, said: Sequence[Synthesis] | None = None) -> list[Synthesis]:
        if said is None:
            return [network.infer(text) for text in texts]
        given = [{"durations": s.duration, "pitch": s.pitch, "energy": s.energy} for s in said]
        return [network.infer(text, **what) for text, what in zip(texts, given, strict=True)]

    said = speak(model)

    def change(kept: Kept) -> float:
        pairs = zip(speak(thinned(model, kept), said), said, strict=True)
        return sum((new.mel - old.mel).abs().mean().item() for new, old in pairs)

    kept = whole(model)
    kept = replace(kept, filters=strongest_filters(model, lambda: speak(model), filters))
    ways = tqdm(list(combinations(kept.layers, layers)), desc="layers")
    kept = min((replace(kept, layers=way) for way in ways), key=change)
    # One layer's heads at a time: as many are silenced in the others, which must have equal numbers.
    chosen = {layer: tuple(range(heads)) for layer in kept.heads}
    for layer in tqdm(kept.layers, desc="heads"):
        ways = combinations(range(model.config.out_fft_n_heads), heads)
        chosen = min(({**chosen, layer: way} for way in ways), key=lambda c: change(replace(kept, heads=c)))
    return replace(kept, heads=chosen)


def require_fewer(model: FastPitch, layers: int, heads: int, filters: int) -> None:
    """InputError where the decoder has less than is to be kept."""
    config = model.config
    have = config.out_fft_n_layers, config.out_fft_n_heads, config.out_fft_conv1d_filter_size
    for name, asked, there in zip(
        ("layers", "heads", "filters"), (layers, heads, filters), have, strict=True
    ):
        if asked > there:
            raise InputError(f"--{name} {asked}: the decoder has {there}; give that many or fewer")


def main() -> None:
    parser = Parser(
        prog="python -m recipes.hazel.prune", description="Thins the decoder of a trained FastPitch."
    )
    parser.add_argument("weights", type=Path, help="weights.safetensors of a training run")
    parser.add_argument("--corpus", type=Path, required=True, help="a prepared corpus: its texts are spoken")
    parser.add_argument("--layers", type=positive, required=True, help="layers of the decoder to keep")
    parser.add_argument("--heads", type=positive, required=True, help="heads to keep in each")
    parser.add_argument("--filters", type=positive, required=True, help="filters to keep in each")
    what = "checkpoint to write, for melforge.fastpitch.train --init"
    parser.add_argument("-o", "--output", type=Path, required=True, help=what)
    args = parser.parse_args()
    source = read_checkpoint(args.weights, "fastpitch")
    model = trained_network(source, FastPitch)
    require_fewer(model, args.layers, args.heads, args.filters)
    ids = load_labels(args.corpus).ids
    texts = [torch.from_numpy(row)[None] for row in ids[:: max(1, len(ids) // EXAMPLES)][:EXAMPLES]]
    kept = choose(model, texts, args.layers, args.heads, args.filters)
    thin = thinned(model, kept)
    networks = {"model": thin.state_dict(), "ema": Ema(thin, 0.0).state_dict()}
    save_checkpoint(args.output, trainer=networks)
    heads = ", ".join(str(list(kept.heads[layer])) for layer in kept.layers)
    print(f"{args.output}: layers {list(kept.layers)}, their heads {heads}, {args.filters} filters in each")
