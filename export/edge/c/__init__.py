"""The target `c`: a policy as dependency-free C99, with its golden vectors as a self-test."""
