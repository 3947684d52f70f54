"""Publishers and subscribers of a run: simulated boards, real boards, and programs over TCP."""
