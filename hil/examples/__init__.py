"""Foreign programs that publish in a bench (README, Your own program)."""
