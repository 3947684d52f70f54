"""What is seen at each hop of a run, read only, and the history that it is entered in."""
