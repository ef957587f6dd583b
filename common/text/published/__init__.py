"""Frontends of the published checkpoints."""
