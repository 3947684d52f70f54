"""The judge of a history. This package reads only the history."""
