"""Check that each promise of the guides has evidence: a test or a constant that holds it.

A TOML file in this folder lists the promises of a guide: words of the sentence, and the evidence
(`evidence.py`). `first words ... last words` stands for all sentences from the first to the last.
The evidence is not written in the guide, so that readers of the raw text are not disturbed. A link
to a test in the sentence (`[test_x](../tests/test_a.py)`) is evidence as well. If the words of a
sentence change, the evidence no longer applies, and the author has to look at the test again.

`--write` (part of `make docs`) writes the present values of constants into guides and tables.

`python -m tests.promises GUIDE` lists the promises of a guide with their evidence. With `--check`,
the exit code is 1 if a guide has more promises without evidence than its limit in `limits.toml`. It
is also 1 if evidence fails: the test does not exist, the constant has another value, the guide
lacks the words, or the sentence is not a promise. A limit may only go down. A new guide has the
limit 0.
"""

import argparse
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.promises.evidence import fault
from tests.promises.guide import Sentence, sentences
from tests.promises.writing import renewed

ROOT = Path(__file__).parents[2]
TABLES = Path(__file__).parent
OTHERS = (
    "CHANGELOG.md",
    "gateway/config/REFERENCE.md",
    "gateway/docs/clients.md",
    "gateway/mqtt/STATEMENTS.md",
    "gateway/web/METRICS.md",
    "hil/INPUTS.md",
    "hil/OUTPUTS.md",
)
"""Guides whose sentences are not checked: they describe past changes, or are generated."""


LINKED = re.compile(r"\[(test_\w+)\]\((?:\.\./)+(tests/[\w/]+\.py)\)")
"""A link to a test in a sentence of a guide."""


@dataclass
class Audit:
    """The promises of a guide. held: promises with evidence. open: promises without evidence.
    faults: evidence that fails.
    """

    guide: str
    held: list[tuple[Sentence, list[str]]] = field(default_factory=list)
    open: list[Sentence] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    @property
    def kinds(self) -> tuple[int, int, int]:
        """Return how many promises are held by tests, how many by constants or benchmarks, and how
        many sentences promise nothing about Onceway.
        """
        tests = sum("::" in evidence[0] for _, evidence in self.held)
        reasons = sum(evidence[0].startswith("none:") for _, evidence in self.held)
        return tests, len(self.held) - tests - reasons, reasons


def audit(guide: str, source: str, marks: dict[str, str | list[str]], root: Path = ROOT) -> Audit:
    """Check the promises of a guide. source: text of the guide. marks: evidence for a sentence, by
    words that only this sentence has.
    """
    result, all_of = Audit(guide), list(sentences(source))
    evidence_of: dict[int, list[str]] = {}
    for words, value in marks.items():
        evidence = [value] if isinstance(value, str) else value
        try:
            places = _places(words, all_of)
        except ValueError as error:
            result.faults.append(f"{guide}: {error}")
            continue
        promises = [index for index in places if all_of[index].promises]
        if not promises:
            result.faults.append(f"{guide}:{all_of[places[0]].line}: not a promise: {words!r}")
        text = " ".join(all_of[index].text for index in places)
        for one in evidence:
            if wrong := fault(one, text, root):
                result.faults.append(f"{guide}:{all_of[places[0]].line}: {wrong}")
        for index in promises:
            evidence_of.setdefault(index, []).extend(evidence)
    for index, sentence in enumerate(all_of):
        for name, file in LINKED.findall(sentence.text) if sentence.promises else ():
            evidence_of.setdefault(index, []).append(one := f"{file}::{name}")
            if wrong := fault(one, "", root):
                result.faults.append(f"{guide}:{sentence.line}: {wrong}")
        if evidence_of.get(index):
            result.held.append((sentence, evidence_of[index]))
        elif sentence.promises:
            result.open.append(sentence)
    return result


def _places(words: str, all_of: list[Sentence]) -> range:
    """Return the indices of the sentences to which `words` refers: one sentence with these words,
    or for `A ... B` all sentences from the one with A to the next one with B. Raises ValueError if
    there are none, or if A is in several sentences.
    """
    first, _, last = words.partition(" ... ")
    found = [index for index, sentence in enumerate(all_of) if first in sentence.text]
    if len(found) != 1:
        raise ValueError(f"{len(found)} sentences have the words {first!r}")
    ends = [index for index in range(found[0], len(all_of)) if last in all_of[index].text]
    if not ends:
        raise ValueError(f"no sentence behind {first!r} has the words {last!r}")
    return range(found[0], ends[0] + 1)


def marks() -> dict[str, dict[str, str | list[str]]]:
    """Return the evidence of each guide: by words of the sentence that it supports."""
    read = [tomllib.loads(path.read_text()) for path in TABLES.glob("*.toml")]
    return {table["guide"]: table["promises"] for table in read if "guide" in table}


def audits() -> Iterator[Audit]:
    known = marks()
    listed = subprocess.run(
        ["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for guide in listed.stdout.split():
        if guide not in OTHERS and (ROOT / guide).is_file():
            yield audit(guide, (ROOT / guide).read_text(), known.get(guide, {}))


def report(found: list[Audit], limits: dict[str, int]) -> tuple[str, bool]:
    """Return a table of the counts with all faults, and whether everything is right: no fault, and
    no guide beyond its limit.
    """
    lines = [f"{'':40}{'tests':>8}{'values':>8}{'others':>8}{'open':>8}{'limit':>8}"]
    right = True
    for one in found:
        limit = limits.get(one.guide, 0)
        beyond = len(one.open) > limit
        right &= not beyond and not one.faults
        cells = "".join(f"{count:8}" for count in (*one.kinds, len(one.open), limit))
        lines.append(f"{one.guide:40}{cells}{'  beyond its limit' if beyond else ''}")
        if beyond and limit == 0:
            lines += [f"  {one.guide}:{each.line}: no evidence: {each.text}" for each in one.open]
        lines += [f"  {wrong}" for wrong in one.faults]
    lines += [f"{guide}: a limit without a guide" for guide in limits.keys() - _names(found)]
    return "\n".join(lines), right and limits.keys() <= _names(found)


def _names(found: list[Audit]) -> set[str]:
    return {one.guide for one in found}


def write() -> None:
    """Write the present values of constants and measurements into the guides, and into the tables
    of evidence.
    """
    for path in TABLES.glob("*.toml"):
        text = path.read_text()
        table = tomllib.loads(text)
        if "guide" in table:
            guide = ROOT / table["guide"]
            new = renewed(guide.read_text(), text, table["promises"], ROOT)
            guide.write_text(new[0])
            path.write_text(new[1])


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("guides", nargs="*", metavar="GUIDE", help="list the promises of this one")
    parser.add_argument("--check", action="store_true", help="exit 1 when something is missing")
    parser.add_argument("--write", action="store_true", help="write the figures of constants anew")
    given = parser.parse_args(arguments)
    if given.write:
        write()
    found = [one for one in audits() if not given.guides or one.guide in given.guides]
    for one in found if given.guides else []:
        for sentence, evidence in one.held:
            print(f"{one.guide}:{sentence.line}: {sentence.text}\n    {'; '.join(evidence)}")
        for sentence in one.open:
            print(f"{one.guide}:{sentence.line}: NO EVIDENCE: {sentence.text}")
    limits = tomllib.loads((TABLES / "limits.toml").read_text())
    if given.guides:
        limits = {guide: limit for guide, limit in limits.items() if guide in given.guides}
    text, right = report(found, limits)
    print(text)
    return int(given.check and not right)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
