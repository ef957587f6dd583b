"""`add_pos_enc` as a TensorRT plugin: x (B, T, C), lengths (B,), table (above T, C) -> (B, T, C)."""

from trt_plugins.add_pos_enc.launch import TYPES, launch
from trt_plugins.kernel import Launch
from trt_plugins.plugin import KernelPlugin


class AddPosEncPlugin(KernelPlugin):
    name = "AddPosEnc"
    types = (tuple(TYPES), ("int64",), ())

    def output_dims(self, x, lengths, table):
        return [x[0], x[1], x[2]]

    def launch(self, device: int, dtype: str, shapes: list[tuple], addresses: tuple[int, ...]) -> Launch:
        (batch, frames, channels), _, (positions, _) = shapes
        return launch(device, dtype, (batch, frames, channels, positions), addresses)
