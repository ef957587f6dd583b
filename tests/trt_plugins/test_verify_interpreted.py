"""Kernels show verify what is inside them; in Triton's interpreter, without a GPU."""

import json

import pytest

from tests.trt_plugins.vocoder_kernels import interpreted

DAMAGES = {
    "fastpitch": {
        "encoder.layers.0.dec_attn.qkv_net.weight": "encoder: encoder.layers.0.dec_attn.qkv_net",
        "duration_predictor.layers.0.conv.weight": "encoder: duration_predictor.layers.0.conv",
        "energy_predictor.fc.weight": "decoder: energy_predictor.fc",
    },
    "fastspeech": {
        "phoneme_side.layer_stack.0.slf_attn.fc.weight": "encoder: phoneme_side.layer_stack.0.slf_attn",
        "mel_side.layer_stack.0.pos_ffn.w_1.weight": "decoder: mel_side.layer_stack.0.pos_ffn.w_2<",
    },
    "hifigan": {
        "ups.1.weight": "masked_generator: resblocks.1.0.convs.0<",
        "resblocks.1.1.convs.0.weight": "masked_generator: resblocks.1.1.convs.1<",
    },
    "source": {
        "resblocks.0.convs.1.weight": "masked_generator: resblocks.0.convs.1",
        "pitch.convs.1.weight": "masked_pitch: pitch.convs.1",
        "pitch.post.weight": "masked_pitch: pitch of these layers",
    },
    "waveglow": {
        "WN.1.in_layers.1.weight": "masked_generator: WN.1.res_skip_layers.1<",
        "WN.0.res_skip_layers.0.weight": "masked_generator: WN.0.in_layers.1<",
        "convinv.1.inverse": "masked_generator: convinv.1:undo",
    },
}


@pytest.mark.slow
@pytest.mark.triton
@pytest.mark.parametrize("model", DAMAGES)
def test_two_percent_of_a_weight_is_found_where_it_is(model):
    found = json.loads(interpreted("verify", model, "", *DAMAGES[model]))
    name = "hifigan" if model == "source" else model
    assert found == [None, *(f"{name}.{tensor}" for tensor in DAMAGES[model].values())]
