"""What publishes and subscribes in a run: simulated boards, real boards, and programs over TCP."""
