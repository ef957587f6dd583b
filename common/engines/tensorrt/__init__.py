"""TensorRT: building engines, their files, and running them."""
