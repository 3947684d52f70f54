"""Bench (one TOML file), the mistakes in it, and its plan."""
