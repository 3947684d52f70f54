"""Programs of somebody else that publish in a bench (README, Your own program)."""
