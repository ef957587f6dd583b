"""The speech server as an application of Ray Serve, for KubeRay and `serve run melforge.ray_app:build`."""

from __future__ import annotations

from typing import Any

from common.cli.serve import application


def build(args: dict[str, Any]) -> Any:
    """`args` are the options of `melforge serve` by their names, such as {"replicas": 2, "warm_up": True}.

    Ray's own proxies listen, at an address that others can reach: keys are asked for unless `without_keys`.
    """
    words = []
    for name, value in {"host": "0.0.0.0", **args}.items():
        option = f"--{name.replace('_', '-')}"
        words += [option] if value is True else [] if value in (False, None) else [f"{option}={value}"]
    return application(words)
