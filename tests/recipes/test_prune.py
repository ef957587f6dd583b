import torch

from melforge.fastpitch.config import FastPitchConfig
from melforge.fastpitch.model import FastPitch
from recipes.hazel.prune import Kept, choose, thinned, whole

SIZES = dict(symbols_embedding_dim=16, in_fft_output_size=16, out_fft_output_size=16, mask_padding=True)
CONFIG = FastPitchConfig(
    **SIZES,
    in_fft_n_layers=1,
    in_fft_conv1d_filter_size=8,
    out_fft_n_layers=2,
    out_fft_n_heads=2,
    out_fft_d_head=4,
    out_fft_conv1d_filter_size=12,
)
USED = Kept((0, 1), {0: (1,), 1: (0,)}, {0: (0, 3, 4, 9, 10, 11), 1: (1, 2, 3, 5, 7, 8)})


def network():
    """One whose decoder answers by USED alone."""
    torch.manual_seed(0)
    model = FastPitch(CONFIG).eval()
    model.duration_predictor.fc.bias.data.fill_(1.0)
    with torch.no_grad():
        for number, layer in enumerate(model.decoder.layers):
            unused = [head for head in range(2) if head not in USED.heads[number]]
            layer.dec_attn.o_net.weight.unflatten(1, (2, 4))[:, unused] = 0
            idle = [i for i in range(12) if i not in USED.filters[number]]
            layer.pos_ff.CoreNet[2].weight[:, idle] = 0
    return model


def mel(model):
    return model.infer(torch.arange(1, 9)[None]).mel


def test_what_no_output_needs_goes_without_a_trace():
    model = network()
    thin = thinned(model, USED)
    assert thin.config.out_fft_n_heads == 1 and thin.config.out_fft_conv1d_filter_size == 6
    torch.testing.assert_close(mel(thin), mel(model), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(mel(thinned(model, whole(model))), mel(model), rtol=0, atol=0)


def test_what_is_used_is_found():
    kept = choose(
        network(), [torch.arange(1, 9)[None], torch.arange(20, 40)[None]], layers=2, heads=1, filters=6
    )
    assert tuple(kept.layers) == (0, 1)
    assert {layer: tuple(heads) for layer, heads in kept.heads.items()} == USED.heads
    assert {layer: tuple(filters) for layer, filters in kept.filters.items()} == USED.filters


def test_a_layer_less_changes_least_without_the_idle_one():
    model = network()
    with torch.no_grad():
        first = model.decoder.layers[0]
        for weight in (
            first.dec_attn.o_net.weight,
            first.pos_ff.CoreNet[2].weight,
            first.pos_ff.CoreNet[2].bias,
        ):
            weight.zero_()
    assert choose(model, [torch.arange(1, 30)[None]], layers=1, heads=2, filters=12).layers == (1,)
