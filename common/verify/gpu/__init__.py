"""TensorRT against PyTorch on the same GPU: errors, speech and speed."""
