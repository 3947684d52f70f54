"""Judge a history. This package reads only the history."""
