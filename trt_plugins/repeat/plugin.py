"""`repeat` as a TensorRT plugin: x (B, N, C), counts (B, N), frames (T,) -> (B, T, C)."""

from trt_plugins.kernel import Launch
from trt_plugins.plugin import KernelPlugin
from trt_plugins.repeat.launch import NUMBER_BYTES, launch


class RepeatPlugin(KernelPlugin):
    name = "Repeat"
    types = (tuple(NUMBER_BYTES), ("int64",), ("int64",))

    def output_dims(self, x, counts, frames):
        return [x[0], frames[0], x[2]]

    def launch(self, device: int, dtype: str, shapes: list[tuple], addresses: tuple[int, ...]) -> Launch:
        (batch, steps, channels), _, (frames,) = shapes
        return launch(device, dtype, (batch, steps, frames, channels), addresses)
