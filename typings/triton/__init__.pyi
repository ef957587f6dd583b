# Triton declares no types: what a kernel is made of is Any.
from typing import Any

def __getattr__(name: str) -> Any: ...
