"""Models for NVIDIA's Triton Inference Server: a repository of ours, the code behind it, and a client."""
