"""The plugins. `register` comes before TensorRT parses a graph with their nodes or loads its engine."""

from melforge.trt_plugins.add_pos_enc import launch as add_pos_enc
from melforge.trt_plugins.kernel import Launch
from melforge.trt_plugins.plugin import NAMESPACE, VERSION, Creator, KernelPlugin, trt
from melforge.trt_plugins.repeat import launch as repeat
from melforge.trt_plugins.tacotron2_decoder.plugin import Tacotron2DecoderPlugin


class AddPosEncPlugin(KernelPlugin):
    """x (B, T, C), lengths (B,), table (above T, C) -> (B, T, C)."""

    name = "AddPosEnc"
    types = (tuple(add_pos_enc.TYPES), ("int64",), ())

    def output_dims(self, x, lengths, table):
        return [x[0], x[1], x[2]]

    def launch(self, device: int, dtype: str, shapes: list[tuple], addresses: tuple[int, ...]) -> Launch:
        (batch, frames, channels), _, (positions, _) = shapes
        return add_pos_enc.launch(device, dtype, (batch, frames, channels, positions), addresses)


class RepeatPlugin(KernelPlugin):
    """x (B, N, C), counts (B, N), frames (T,) -> (B, T, C)."""

    name = "Repeat"
    types = (tuple(repeat.NUMBER_BYTES), ("int64",), ("int64",))

    def output_dims(self, x, counts, frames):
        return [x[0], frames[0], x[2]]

    def launch(self, device: int, dtype: str, shapes: list[tuple], addresses: tuple[int, ...]) -> Launch:
        (batch, steps, channels), _, (frames,) = shapes
        return repeat.launch(device, dtype, (batch, steps, frames, channels), addresses)


PLUGINS = (AddPosEncPlugin, RepeatPlugin, Tacotron2DecoderPlugin)
CREATORS = tuple(Creator(plugin) for plugin in PLUGINS)  # TensorRT keeps no reference


def register() -> None:
    """Registers all creators, once a process."""
    registry = trt.get_plugin_registry()
    for creator in CREATORS:
        if registry.get_creator(creator.name, VERSION, NAMESPACE) is None:
            registry.register_creator(creator, NAMESPACE)
