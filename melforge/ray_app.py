"""The speech server as an application of Ray Serve, for KubeRay and `serve run melforge.ray_app:build`."""

from __future__ import annotations

from typing import Any

from melforge.common.cli.serve import application


def build(args: dict[str, Any]) -> Any:
    """`args` are the options of `melforge serve` by their names, such as {"replicas": 2, "warm_up": True}.

    Ray's own proxies listen, at an address that others can reach: keys are asked for unless `without_keys`.
    """
    return application(words_of({"host": "0.0.0.0", **args}))


def words_of(args: dict[str, Any]) -> list[str]:
    """As on a command line. Ray's gives texts: true and false are an option that is there, or not."""
    words = []
    for name, value in args.items():
        option, text = f"--{name.replace('_', '-')}", str(value)
        if text.lower() == "true":
            words.append(option)
        elif text.lower() not in ("false", "none"):
            words.append(f"{option}={text}")
    return words
