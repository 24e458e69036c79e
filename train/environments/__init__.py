"""Environments: from the name that a user gives to guarded single and vector environments, and what they are."""

from train.environments.checking import check_environment
from train.environments.describing import describe_environment, describe_space
from train.environments.making import make_environment
from train.environments.vectors import VectorKind, make_vector

__all__ = [
    "VectorKind",
    "check_environment",
    "describe_environment",
    "describe_space",
    "make_environment",
    "make_vector",
]
