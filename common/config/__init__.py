"""Configuration: YAML files as typed dataclasses."""
