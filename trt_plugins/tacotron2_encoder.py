"""The stage `encoder` of Tacotron 2 on PyTorch's kernels, with texts padded to few lengths."""

from collections.abc import Callable

from torch import Tensor, nn

from melforge.common.engines.padded import CapturedNetwork
from melforge.tacotron2.model import Tacotron2


class CapturedTacotron2Encoder(CapturedNetwork):
    """Symbols behind the longest item are zeros to every convolution, as at the text's own length.

    In half precision cuDNN's LSTM was a tenth off in batches of 8 and more, and in smaller ones no faster.
    """

    in_float32 = True

    def method_of(self, network: Tacotron2) -> Callable[..., tuple[Tensor, ...]]:
        # Once: later the graphs of another engine have the weights' addresses.
        if not network.encoder.mask_behind_longest:
            network.encoder.mask_behind_longest = True
            flatten_directions(network.encoder.lstm)
        return network.encode


def flatten_directions(lstm: nn.LSTM) -> None:
    """Puts each direction's weights into one chunk of memory, as cuDNN takes those of an LSTM.

    The network runs the directions one by one, and cuDNN would copy their weights together at every run.
    `nn.LSTM` has both directions in one chunk.
    """
    weights = dict(lstm.named_parameters())
    first = next(iter(weights.values()))
    for direction in ("", "_reverse"):
        one = nn.LSTM(lstm.input_size, lstm.hidden_size, device=first.device, dtype=first.dtype)
        chunk = dict(one.named_parameters())
        for name, weight in chunk.items():
            weight.data.copy_(weights[name + direction].data)
        one.flatten_parameters()
        for name, weight in chunk.items():
            weights[name + direction].data = weight.data
