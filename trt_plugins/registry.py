"""Registers the plugins with TensorRT, before it parses a graph with their nodes or loads its engine."""

from trt_plugins.add_pos_enc.plugin import AddPosEncPlugin
from trt_plugins.plugin import NAMESPACE, VERSION, Creator, trt
from trt_plugins.repeat.plugin import RepeatPlugin
from trt_plugins.tacotron2_decoder.plugin import Tacotron2DecoderPlugin

PLUGINS = (AddPosEncPlugin, RepeatPlugin, Tacotron2DecoderPlugin)
CREATORS = tuple(Creator(plugin) for plugin in PLUGINS)  # TensorRT keeps no reference


def register() -> None:
    """Registers all creators, once a process."""
    registry = trt.get_plugin_registry()
    for creator in CREATORS:
        if registry.get_creator(creator.name, VERSION, NAMESPACE) is None:
            registry.register_creator(creator, NAMESPACE)
