"""HiFi-GAN's generator in half precision on an NVIDIA GPU: our own Triton kernels, one CUDA graph a shape."""
