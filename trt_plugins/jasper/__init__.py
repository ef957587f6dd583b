"""The encoder of Jasper and QuartzNet, on kernels of our own in Triton where they are faster."""
