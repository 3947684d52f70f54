"""Sentences without their numbers. In: a sentence. Out: the sentence with `#` for each number."""

import re

_FIGURE = re.compile(r"(?<![\w.:-])[0-9][0-9,.]*(?![\w:-]|[.,][0-9])")
"""A separate number. Numbers in the names of boards, ports and gateways do not match."""


def without_figures(text: str) -> str:
    """Return the text with `#` in place of each separate number."""
    return _FIGURE.sub("#", text)
