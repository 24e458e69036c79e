"""Checkpoint → bundle: the policy as ONNX, proven equal to what was trained, published whole or not at all."""
