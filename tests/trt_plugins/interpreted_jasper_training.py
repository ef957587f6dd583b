"""Runs the kernels of Jasper's training in Triton's interpreter and prints their largest error.

It is a part of the largest value of what each gives.
"""

import torch
import triton.language as tl  # noqa: F401 (which a kernel must see)

from tests.trt_plugins.training_kernels import depthwise_differences, differences, reading_difference

shapes = ((1, 3, 2), (1, 5, 9001), (2, 3, 1024), (3, 7, 2600), (6, 2, 777))
errors = [difference for shape in shapes for difference in differences(*shape, "cpu", torch.float32)]
for shape in ((2, 3, 131, 25, 1), (1, 2, 64, 1, 1), (2, 2, 200, 51, 2), (1, 5, 70, 9, 3)):
    errors += depthwise_differences("cpu", torch.float32, *shape)
print(max(*errors, reading_difference("cpu")))
