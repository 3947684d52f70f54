"""One run, many runs, and what a person sees of them."""
