"""A model on another backend against PyTorch, layer by layer."""
