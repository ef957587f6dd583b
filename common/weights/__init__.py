"""Weights: voices, published checkpoints, trained checkpoints."""
