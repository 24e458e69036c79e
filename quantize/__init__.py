"""Checkpoint → int8 scales: Paddle decides every number, and a gate bounds what they cost."""
