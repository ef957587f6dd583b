"""The mask of a padded batch, for networks."""

from __future__ import annotations

import torch
from torch import Tensor


def length_mask(lengths: Tensor, size: int) -> Tensor:
    """(B, size) bool: True at the first `lengths` (B,) positions."""
    return torch.arange(size, device=lengths.device) < lengths[:, None]
