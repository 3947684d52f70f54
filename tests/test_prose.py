"""Findings of `tests/prose.py`: each kind is found, and an exception with a reason is not."""

import pytest

from tests.prose import MOST_WORDS, findings

LONG = " ".join(["word"] * (MOST_WORDS + 1))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("What has come.", "first"),
        ("Those that wait.", "first"),
        ("Was refused by the broker.", "first"),
        ("Called by the writer.", "first"),
        ("Return the part that nobody reads.", "odd"),
        ("The file is no table.", "odd"),
        ("Return the packets of a follower.", "synonym"),
        (f"{LONG}.", "long"),
    ],
)
def test_finding_of_each_kind_is_reported_with_its_line(text: str, kind: str) -> None:
    found = list(findings("gateway/x.py", f'def f():\n    """{text}"""\n'))
    assert (found[0].kind, found[0].line) == (kind, 2)


@pytest.mark.parametrize(
    "source",
    [
        '"""Return the next packet id."""\n',
        '"""Listen at the address."""\n',
        '"""The `follower` of `nobody`."""\n',
        '"""None until CONNECT."""  # prose: None is the value\n',
        'run(\n    """nobody"""\n)\n',
    ],
)
def test_plain_texts_code_and_exceptions_are_not_reported(source: str) -> None:
    assert not list(findings("gateway/x.py", source))


def test_guide_is_read_without_its_code_and_tables() -> None:
    guide = (
        "A line.\n\n    nobody\n\n| nobody |\n\nTell nobody.\n\nNobody. <!-- prose: a name -->\n"
    )
    found = list(findings("gateway/README.md", guide))
    assert [(one.kind, one.line) for one in found] == [("odd", 7)]


def test_comment_is_read_as_one_text() -> None:
    source = "x = 1\n# the part that\n# nobody reads\ny = 2\n"
    assert [one.line for one in findings("hil/x.py", source)] == [2]
