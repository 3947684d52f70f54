"""What a run is made of: a bench (one TOML file), the mistakes in one, and its plan."""
