"""One loss, two engines: a compiled static program, and Paddle's eager mode."""
