"""Stages as ONNX graphs: exporting, checking, storing."""
