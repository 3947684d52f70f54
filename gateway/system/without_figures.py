"""Sentences without their figures. In: a sentence. Out: a text in which each figure is `#`."""

import re

_FIGURE = re.compile(r"(?<![\w.:-])[0-9][0-9,.]*(?![\w:-]|[.,][0-9])")
"""A separate number. Numbers in the names of boards, ports and gateways do not match."""


def without_figures(text: str) -> str:
    """Return a text in which each figure is `#`."""
    return _FIGURE.sub("#", text)
