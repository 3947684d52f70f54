"""Count words and phrases that make readers stop, in all texts.

The texts are docstrings, comments, guides, messages (strings of at least three words in the
product's code: log lines, errors, help), HTML and scripts of the page, alert rules, units, and
names. `make lint` runs `python -m tests.prose`. `prose.toml` has a limit for each package and each
kind of finding: the lowest count so far. A change may lower a limit, but not raise it. `python -m
tests.prose FOLDER` lists the findings in a folder. `.pre-commit-config.yaml` runs `python -m
tests.prose --subject FILE` for each commit message.

An exception needs a reason: `# prose: REASON` after the text, or `<!-- prose: REASON -->` in the
line of a guide.
"""

import argparse
import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
KINDS = ("first", "odd", "synonym", "long", "name")
PACKAGES = ("gateway", "hil", "provisioning", "firmware", ".setup", "tests", "systemd")
ROOT_GUIDES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
PRODUCT = ("gateway/", "hil/", "provisioning/")
PLAIN = (".html", ".js", ".yml", ".service", ".timer")
"""Endings of files, other than Python and Markdown, that have texts for people."""
MOST_WORDS = 30
"""Largest number of words in a sentence."""

_FIRST = re.compile(
    r"(?:What|Who|Whom|Whose|Those|That|This|These|It|Its|They|Their|Of|So|Nothing|Nobody|Somebody"
    r"|None|All that|As|Such|There|Where|Whoever|Most|Least|Why|How|Which|When|Until|By|Behind"
    r"|Otherwise|Else|Whatever|Whichever|However|Rather|Though|Then|Also|And|Not|Neither|Perhaps"
    r"|Needs|Stands|Takes|Has)\b"
)
"""First words of a docstring that begins with a clause, a pronoun, an adverb, a verb without its
subject, or "Most" for a largest number.
"""
_PASSIVE = re.compile(
    r"(?:Is|Are|Was|Were|Be|Been|Being)\b|(?!Listen|Open|Need|Feed|Seed|Embed)"
    r"(?:[A-Z]\w+(?:ed|en)|Held|Kept|Told|Made|Sent|Shown|Lost|Set)"
    r" (?:and not|at|by|with|when|once|if|while|for|until|before|after|from)\b"
)
"""First words of a docstring that begins with a passive."""
_ODD = re.compile(
    r"\bnobody\b|\bsomebody\b|\bwhoever\b|\bwhosoever\b|\banew\b|\bfor ever\b|\blest\b|\bin vain\b"
    r"|\bthereby\b|\bhence\b|\bwherefore\b|\bthe former\b|\bhis turn\b|\b(?:has|have) (?:its|their)"
    r" turns?\b|\bwhat (?:is|was|are|were|has|had|it|they|comes?|came|waits?|goes|stands?|there)\b"
    r"|\bwho (?:is|has|wants|asks|takes|gives|sends|reads|says|knows|goes|comes|looks|waits)\b"
    r"|\bcosts? (?:nobody|nothing|itself)\b|\bcomes? (?:by|along|due|to nothing)\b|\bbut for\b"
    r"|\bso (?:many|much|long|often)\b(?! (?:as|that))|\b(?:is|are) (?:said|told) (?:so|once|by)\b"
    r"|(?<!there )\b(?:is|are|was|were) no (?!longer|more|less)\w+|\bgoes on and on\b"
    r"|\b(?:he|his|him) \w+|\bof (?:them|these|those) (?:is|are|was|were)\b"
    r"|^(?-i:(?:the )?(?:most|least) [a-z]+s\b)"
    r"|\bas of CODE\b|\bstands? still\b|\b(?:this|the) very\b|\bin all$|\bsince\.?$"
    r"|\b(?:each|both) ways?(?=[.,;:]|$)|\bbut for\b|\bas many again\b|\bgoes on(?=[.,;:]|$)",
    re.IGNORECASE,
)
"""Phrases that make readers stop: a clause in place of a noun, an old word, or a person in place of
a part of the product.
"""
_LOOSE = re.compile(
    r"\bcannot be(?: right)?(?=[.,;:)]|$)|\bthe one before(?=[.,;:)]|$)|\bfor want of\b"
    r"|\btakes? no (?:data|messages?|commands?|orders?|copies|bytes|QoS|interval|clients?)\b"
    r"|\bnot take[ns]? (?:it|the (?:command|message|session|list))(?! for\b)"
    r"|\b(?:comes?|came) (?:twice|again)\b|\b(?:is|are|was|were|been?) (?:not )?told\b"
    r"|\bcertificates? (?:has |have )?end(?:s|ed)?\b|\b(?:which|lower) of both\b"
    r"|\b(?:gateway|board|device|user|file)s? of (?:the|this|such a|one|a) name\b"
    r"|\b(?:answered|sessions?|clients?) in doubt\b|\bare given up\b|\bcannot make\b",
    re.IGNORECASE,
)
"""Vague words for which there are exact ones: invalid, previous, lack, accept, arrive, inform,
expire, "with this name", suspect, dropped and create. They do not count in tests.
"""
_FIELD = re.compile(r"^of (?:the|its|a|an|all|each|this|that|both)\b(?! which)")
"""First words of a field's description that lacks a noun, such as "name: of the gateway"."""
SYNONYMS = {
    r"carriers?": "transport",
    r"followers?": "forwarder",
    r"journeys?|travell?ing": "session move",
    r"passages?|passed on": "forwarding, forwarded",
    r"doubled": "replicated",
    r"doubtful|mistrusts?|mistrusted": "suspect",
    r"lineages?": "number of the moving session",
    r"contradictions?": "payload conflict",
    r"lives of (?:a|the) store|life of (?:a|the) store": "store generation",
    r"shipped firmware": "bundled firmware",
    r"the crowd": "connection limiter",
}
"""Words that the glossary replaces (`gateway/GLOSSARY.md`), each with its replacement."""
_SYNONYM = re.compile(rf"\b(?:{'|'.join(SYNONYMS)})\b", re.IGNORECASE)
NAMES = {
    "what": "text, reason, problem: the noun",
    "who|whom|whose|it|its|there|here": "the noun",
    "left": "remaining, departed, moved_to, expires_in",
    "held": "pending, stored, blocked, proven: the kind of holding",
    "told|said": "text, report, fields, logged: the noun",
    "taken|takes|brought|came|gone|given": "accepted, read, received, removed, moved",
    "passage|passing|passed|passed_on": "forwarded, elapsed",
    "doubled": "replicated, duplicate",
    "doubtful|marked": "suspect",
    "carrier|follower|journey|lineage|travelling|contradiction|crowd|shipped": "see the glossary",
}
"""Names that have several meanings or that the glossary replaces, each with better names."""
_NAME = re.compile(rf"_*(?:{'|'.join(NAMES)})")
_TEST_NAME = re.compile(
    r"test_(?:what|who|it|its|nothing|those|there|they|nobody)_\w+"
    r"|test_\w+_(?:nobodys?|somebody|everybody|whatever|whoever|says_so|not_there|that_there_\w+)"
    r"(?:_\w+)?|test_\w+_told(?:_\w+)?"
)
"""Names of tests that lack a subject or have a pronoun in place of a noun."""
MOST_LETTERS = 60
"""Largest number of characters in the first line of a commit message."""
_SUBJECT = re.compile(r"(?:[\w.,/ -]+: .+|Merge .+|Revert .+)")
_SQL = re.compile(r"\b(?:SELECT|INSERT|UPDATE|DELETE|CREATE|PRAGMA|ALTER|WHERE|BETWEEN)\b")
_WORDS = re.compile(r"(?:\b[a-z]{2,}\b.*?){3}", re.DOTALL)
_QUOTED = re.compile(r"\"((?:[^\"\\\n]|\\.)*)\"|'((?:[^'\\\n]|\\.)*)'|`((?:[^`\\]|\\.)*)`|// ?(.*)")
_STRING = re.compile(r'^(.*?)"""(.*?)"""([^\n]*)', re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"^[ ]*# (?:.*\n[ ]*# )*.*", re.MULTILINE)
_BLOCK = re.compile(r"^```.*?^```|^(?: {4}|\|).*?$", re.MULTILINE | re.DOTALL)
_CONTINUED = ("(", "[", "{", ",", "=", "return", "+", "yield")
_CODE = re.compile(r"`[^`\n]*`|\[[^\]]*\]\([^)]*\)|https?:\S+|\"[^\"\n]*\"")
_END = re.compile(r"(?<=[.:;!?])\s+|\n\s*\n|\n\s*[-*] |\n\s*\d+\. |\n {2,}\S[^\n]* {2,}[^\n]*")

LIMITS: dict[str, list[int]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
"""Limits by package, one for each of the KINDS."""


class Finding(NamedTuple):
    file: str
    line: int
    kind: str
    text: str


def findings(file: str, source: str) -> Iterator[Finding]:
    """Yield the findings in a file. source: its text."""
    if file.endswith(".py"):
        yield from _names(file, source)
    for line, text, opens in _texts(file, source):
        if opens and (first := _FIRST.match(text.strip()) or _PASSIVE.match(text.strip())):
            yield Finding(file, line, "first", f"{first[0]}: {text.strip()[:60]!r}")
        for sentence in _END.split(_CODE.sub("CODE", text)):
            words = " ".join((sentence or "").split())
            odd = _ODD.search(words)
            if not file.startswith("tests"):
                odd = odd or _LOOSE.search(words) or (opens and _FIELD.match(words))
            if odd:
                yield Finding(file, line, "odd", f"{odd[0]}: {words[:90]}")
            if file.startswith("gateway/") and (found := _SYNONYM.search(words)):
                yield Finding(file, line, "synonym", f"{found[0]}: {words[:90]}")
            if len(words.split()) > MOST_WORDS:
                yield Finding(file, line, "long", f"{len(words.split())} words: {words[:90]}")


def _names(file: str, source: str) -> Iterator[Finding]:
    """Yield a finding for each name of a function, class, argument or variable that is in NAMES,
    and each name of a test like those in `_TEST_NAME`.
    """
    lines = source.splitlines()
    seen = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = node.name
        elif isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            name = node.attr
        else:
            continue
        rule = _TEST_NAME if file.startswith("tests/") else _NAME
        if rule.fullmatch(name) and (name, node.lineno) not in seen:
            seen.add((name, node.lineno))
            if "# prose: " not in lines[node.lineno - 1]:
                yield Finding(file, node.lineno, "name", name)


def _messages(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of each string for people. In its text, CODE stands for each inserted
    value.
    """
    tree, lines = ast.parse(source), source.splitlines()
    parts: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):  # a docstring, or one of an attribute
            parts.add(node.value)
        elif isinstance(node, ast.JoinedStr):
            parts.update(node.values)
            text = "".join(
                str(part.value) if isinstance(part, ast.Constant) else "CODE"
                for part in node.values
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in parts:
            text = node.value
        else:
            continue
        if isinstance(node, ast.Expr) or _SQL.search(text) or not _WORDS.search(text):
            continue
        if not any("# prose: " in line for line in lines[node.lineno - 1 : node.end_lineno]):
            yield node.lineno, text


def _plain(file: str, source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of each text for people in a page, script, rule or unit."""
    if file.endswith(".html"):
        found = [(each.start(), each[1]) for each in re.finditer(r">([^<>{}]+)<", source)]
    elif file.endswith(".js"):
        found = [
            (each.start(), next(filter(None, each.groups()), ""))
            for each in _QUOTED.finditer(source)
        ]
    else:
        found = [(each.start(), each[0]) for each in re.finditer(r"^.+$", source, re.MULTILINE)]
    for start, text in found:
        if _WORDS.search(text) and "prose: " not in text:
            yield source.count("\n", 0, start) + 1, text


def _texts(file: str, source: str) -> Iterator[tuple[int, str, bool]]:
    """Yield the line of each text, the text, and whether it is a docstring. Texts with an exception
    are left out.
    """
    if file.endswith(PLAIN):
        yield from ((line, text, False) for line, text in _plain(file, source))
        return
    if file.endswith(".md"):
        prose = _BLOCK.sub(lambda found: "\n" * found[0].count("\n"), source)
        for found in re.finditer(r"(?:^.+\n?)+", prose, re.MULTILINE):
            if "<!-- prose: " not in found[0]:
                yield prose.count("\n", 0, found.start()) + 1, found[0], False
        return
    for found in _STRING.finditer(source):
        before, text, after = found.groups()
        *_, start = before.split("\n")
        before = (source[: found.start()] + before).removesuffix(start).rstrip()
        if (
            start.strip() in ("", "r")
            and not before.endswith(_CONTINUED)
            and "# prose: " not in after
        ):
            yield source.count("\n", 0, found.start(2)) + 1, text, True
    if file.startswith(PRODUCT):
        yield from ((line, text, False) for line, text in _messages(source))
    for found in _COMMENT.finditer(source):
        if "# prose: " not in found[0] and "# --" not in found[0]:
            text = re.sub(r"^\s*# ?", "", found[0], flags=re.MULTILINE)
            yield source.count("\n", 0, found.start()) + 1, text, False


def package_of(file: str) -> str:
    parts = file.split("/")
    return "/".join(parts[:2]) if parts[0] == "gateway" and len(parts) > 2 else parts[0]


def tracked(*folders: str) -> list[str]:
    """Return all files with texts for people in some folders, without files that git does not
    track.
    """
    kinds = ("*.py", "*.md", *(f"*{kind}" for kind in PLAIN))
    patterns = [f"{folder}/{kind}" for folder in folders for kind in kinds]
    listed = subprocess.run(
        ["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [file for file in listed.stdout.split() if (ROOT / file).exists()]


def subject_problem(message: str) -> str | None:
    """Return a sentence about a fault in the first line of a commit message, or None if it has no
    fault.
    """
    subject = message.split("\n", 1)[0]
    if not _SUBJECT.fullmatch(subject):
        return f"no scope: {subject!r}; write SCOPE: DO SOMETHING"
    if len(subject) > MOST_LETTERS and not subject.startswith(("Merge ", "Revert ")):
        return f"{len(subject)} letters, and at most {MOST_LETTERS} are read: {subject!r}"
    odd = _ODD.search(subject)
    return odd and f"{odd[0]!r} makes a reader stop: {subject!r}"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.prose", description="Count words that make readers stop."
    )
    parser.add_argument("folders", nargs="*", help="list each finding in these folders or files")
    parser.add_argument("--subject", type=Path, help="check only the commit message in this file")
    arguments = parser.parse_args()
    if arguments.subject:
        problem = subject_problem(arguments.subject.read_text())
        print(problem or "the subject is fine")
        return int(problem is not None)
    folders = arguments.folders
    files = [*tracked(*(folders or PACKAGES)), *(ROOT_GUIDES if not folders else ())]
    found = [one for file in files for one in findings(file, (ROOT / file).read_text())]
    if folders:
        print(*(f"{one.file}:{one.line}: {one.kind}: {one.text}" for one in found), sep="\n")
        return 0
    counts = Counter((package_of(one.file), one.kind) for one in found)
    beyond = False
    print(f"{'':24}{''.join(f'{kind:>16}' for kind in KINDS)}")
    for package in sorted({package_of(file) for file in files}):
        limits = zip(KINDS, LIMITS.get(package, (0,) * len(KINDS)), strict=True)
        row = [(counts[package, kind], limit) for kind, limit in limits]
        over = any(count > limit for count, limit in row)
        beyond |= over
        cells = "".join(f"{f'{count} of {limit}':>16}" for count, limit in row)
        print(f"{package:24}{cells}{'  beyond its limit' if over else ''}")
    if beyond:
        print("See: python -m tests.prose FOLDER")
    return int(beyond)


if __name__ == "__main__":
    sys.exit(main())
