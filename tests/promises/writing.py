"""Write figures into guides, from the code and from the last run of the benchmarks.

In: a guide, and the table with the evidence for its promises. Out: both, with present figures.
"""

import math
import re
from pathlib import Path

from tests.promises.evidence import CONSTANT, MEASURED, constant, factors, measured, rounded
from tests.promises.guide import FIGURE, UNITS, Sentence, sentences, value_of


def renewed(guide: str, table: str, marks: dict[str, str | list[str]], root: Path) -> list[str]:
    """Return the texts of the guide and of its table of evidence, with the figures that the
    constants and measurements have now. marks: the evidence in the table, by words of the sentence.
    """
    every = list(sentences(guide))
    for words, value in marks.items():
        for evidence in [value] if isinstance(value, str) else value:
            if found := CONSTANT.fullmatch(evidence):
                new = written(found["figure"], constant(root / found["file"], found["name"]))
            elif found := MEASURED.fullmatch(evidence):
                new = rounded(found["figure"], measured(root, found["name"]))
            else:
                continue
            old = found["figure"]
            if new == old:
                continue
            named = [one for one in every if words.partition(" ... ")[0] in one.text]
            for sentence in named:
                guide = _replace(guide, sentence, old, new)
            table = table.replace(evidence, evidence[: -len(old)] + new)
            table = table.replace(f'"{words}"', f'"{words.replace(old, new)}"')
    return [guide, table]


def written(figure: str, real: float) -> str:
    """Return `real`, which is in base units, as a text in the unit of `figure`. If `figure` still
    has this value, return it unchanged.
    """
    said = value_of(figure)
    if any(math.isclose(said * factor, real) for factor in factors(figure)):
        return figure
    found = FIGURE.fullmatch(re.sub("^an? ", "one ", figure))
    unit = (found[2] or found[4] or "") if found else ""
    number = real / UNITS.get(unit, 1) / factors(figure)[-1]
    if not math.isclose(number, round(number)):
        number = real / UNITS.get(unit, 1)
    text = f"{number:,.10g}"
    plural = "s" if len(unit) > 3 and number != 1 else ""
    return f"{text} {unit}{plural}" if unit else text


def _replace(guide: str, sentence: Sentence, old: str, new: str) -> str:
    place = re.compile(r"\s+".join(map(re.escape, sentence.text.split())))
    words = r"\s+".join(map(re.escape, old.split()))
    figure = re.compile(rf"(?<![\w.]){words}(?!\w)")
    return place.sub(lambda found: figure.sub(new, found[0]), guide)
