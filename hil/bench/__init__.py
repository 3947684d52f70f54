"""A bench (one TOML file), the mistakes in it, and its plan."""
