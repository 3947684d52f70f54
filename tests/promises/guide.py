"""Split a guide into sentences, and find the ones that are promises, which need evidence.

In: Markdown. Out: sentences, without those in headings, code, pictures and hidden comments. A row
of a table counts as a sentence, and so does a comment in indented code. A sentence is a promise if
it has one of the WORDS, the word `default`, or a figure in digits or words. Code spans do not
count, and neither do numbers in names (`QoS 2`, `Debian 12`).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

WORDS = "must|never|always|only|at most|nothing|each|exactly|refused|kept"
_SMALL = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven")
NUMBERS = {word: number for number, word in enumerate(_SMALL, 1)}
NUMBERS |= {"twelve": 12, "twenty": 20, "thirty": 30, "sixty": 60, "hundred": 100, "thousand": 1000}
UNITS = {
    "µs": 1e-6,
    "ms": 0.001,
    "s": 1,
    "second": 1,
    "min": 60,
    "minute": 60,
    "hour": 3600,
    "day": 86_400,
    "week": 604_800,
    "year": 31_557_600,
    "%": 0.01,
    "byte": 1,
    "B": 1,
    "kB": 1000,
    "KB": 1000,
    "MB": 1_000_000,
    "GB": 1_000_000_000,
    "MiB": 1 << 20,
    "million": 1_000_000,
    "time": 1,
    "character": 1,
    "bit": 0.125,
    "k/s": 1000,
    "M/s": 1_000_000,
}
"""Units after a number in a guide, in seconds, bytes or counts."""

_SKIPPED = re.compile(
    r"^```.*?^```|<!--.*?-->|^#.*?$|^ {4}.*?$|^\|[-| ]+\|$|!\[.*?\]\(.*?\)",
    re.MULTILINE | re.DOTALL,
)
_COMMENT = re.compile(r"^ {4}(?:.*?\s)?# (.+)$", re.MULTILINE)
"""A comment in indented code, after a command or a configuration key."""

_ITEM = re.compile(r"^(?:[-*]|\d+\.) +", re.MULTILINE)
_BLOCK = re.compile(r"(?:^.*\S.*\n?)+", re.MULTILINE)
_END = re.compile(r"(?<=[.!?])[*)]*\s+(?=[A-Z`*\[(\"“])")
_CODE = re.compile(r"`[^`]*`|\]\([^)]*\)")
_NAME = re.compile(
    r"\b(?:Debian|QoS|MQTT|RFC|TLS|UTF|SHA|CRC|Pi|version|schema|Apache|GPL|Java|Spark|Python|part"
    r"|reading|question|AES|ISO|port)[- ]?v?\d[\d.]*(?:(?: (?:and|or|to)|,) \d[\d.]*)?|\b\d+-bit\b"
)
_UNIT = "|".join(sorted(map(re.escape, UNITS), key=len, reverse=True))
FIGURE = re.compile(
    rf"(?<![\w.:/-])(\d[\d,_]*(?:\.\d+)?)(?![\w-]*\w)(?: ?({_UNIT})s?(?!\w))?"
    rf"|\b({'|'.join(NUMBERS)}) ({_UNIT})s?(?!\w)",
    re.IGNORECASE,
)
"""A number in digits, or a number in words before a unit. Groups: digits, their unit, word, its
unit.
"""
_WORDED = f"{'|'.join(list(NUMBERS)[1:])}|an? (?:minute|hour|day|week|month|year)|within a second"
"""Words that count as figures: the numbers from two on, and phrases such as `a day`. `one` does not
count, because it is seldom a figure.
"""

_PROMISE = re.compile(rf"\b(?:{WORDS}|defaults?|{_WORDED})\b", re.IGNORECASE)


@dataclass(frozen=True)
class Sentence:
    """A sentence of a guide. line: first line of its paragraph, list item or table row."""

    line: int
    text: str

    @property
    def promises(self) -> bool:
        text = _NAME.sub(" ", _CODE.sub("`", self.text))
        return bool(_PROMISE.search(text) or FIGURE.search(text))


def sentences(source: str) -> Iterator[Sentence]:
    """Yield the sentences of a guide, each on one line. Comments in code come first, then all other
    sentences in order.
    """
    for comment in _COMMENT.finditer(source):
        yield Sentence(source.count("\n", 0, comment.start()) + 1, comment[1])
    prose = _SKIPPED.sub(lambda found: "\n" * found[0].count("\n") or " ", source)
    prose = _ITEM.sub(lambda found: "\0" + " " * (len(found[0]) - 1), prose)
    prose = re.sub(r"^\|", "\0|", prose, flags=re.MULTILINE)
    for block in _BLOCK.finditer(prose):
        line = prose.count("\n", 0, block.start()) + 1
        for part in block[0].split("\0"):
            text = " ".join(part.split())
            pieces = [text.strip("| ")] if text.startswith("|") else _split(text)
            yield from (Sentence(line, piece) for piece in pieces if piece)
            line += part.count("\n")


def _split(text: str) -> list[str]:
    """Split a paragraph into sentences. A full stop in a code span does not end a sentence."""
    spans: list[str] = []

    def hide(found: re.Match[str]) -> str:
        spans.append(found[0])
        return f"`\0{len(spans) - 1}`"

    pieces = _END.split(re.sub("`[^`]*`", hide, text))
    return [re.sub("`\0(\\d+)`", lambda found: spans[int(found[1])], one) for one in pieces]


def value_of(figure: str) -> float:
    """Return a figure in seconds, bytes or counts: 120 for `two minutes`. Raises ValueError if the
    text is not a figure.
    """
    if figure.lower() in NUMBERS:
        return NUMBERS[figure.lower()]
    found = FIGURE.fullmatch(re.sub("^an? ", "one ", figure))
    if found is None:
        raise ValueError(f"{figure!r} is not a figure")
    digits, unit, word, of_word = found.groups()
    number = float(re.sub("[,_]", "", digits)) if digits else float(NUMBERS[word.lower()])
    return number * UNITS.get(unit or of_word or "", 1)
