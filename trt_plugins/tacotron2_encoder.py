"""The stage `encoder` of Tacotron 2 on PyTorch's kernels, with texts padded to few lengths."""

from collections.abc import Callable

from torch import Tensor

from common.engines.padded import CapturedNetwork
from tacotron2.model import Tacotron2


class Encoder(CapturedNetwork):
    """Symbols behind the longest item are zeros to every convolution, as at the text's own length."""

    def method_of(self, network: Tacotron2) -> Callable[..., tuple[Tensor, ...]]:
        network.encoder.mask_behind_longest = True
        return network.encode
