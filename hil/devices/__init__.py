"""What publishes in a run: simulated boards, real boards and clients over TCP."""
