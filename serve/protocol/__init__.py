"""Bytes ⇄ typed requests and responses: knows no web framework and no inference engine."""
