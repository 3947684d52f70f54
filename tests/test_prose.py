"""`tests/prose.py` finds each kind of finding, but not in texts that have an exception with a
reason.
"""

import pytest

from tests.prose import MOST_LETTERS, MOST_WORDS, findings, subject_problem

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
        ("Held at the gateway.", "first"),
        ("Most bytes of a packet.", "first"),
        ("Return the row. name: of the gateway.", "odd"),
        ("Until it is so.", "first"),
        ("Otherwise the feed waits.", "first"),
        ("Return a row that cannot be.", "odd"),
        ("Whether the broker takes no message.", "odd"),
        ("The client is told the reason.", "odd"),
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
        '"""The value cannot be read. The name is taken. A compare takes no time."""\n',
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


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ('log.info("the part that nobody reads")\n', "odd"),
        ('raise OncewayError(f"{name} is no table of the store")\n', "odd"),
        ('print("waits for the follower of a session")\n', "synonym"),
        (f'print("{LONG}")\n', "long"),
        (f'print(f"{"word " * MOST_WORDS}{{x}}")\n', "long"),
        ("left = 1\n", "name"),
        ("def f(self, _told): ...\n", "name"),
        ("self.held = 1\n", "name"),
    ],
)
def test_messages_and_names_of_the_product_are_read(source: str, kind: str) -> None:
    assert [one.kind for one in findings("gateway/x.py", source)] == [kind]


@pytest.mark.parametrize(
    "source",
    [
        'print("the part that nobody reads")  # prose: a quotation\n',
        'db.execute("SELECT what is FROM a table of the store")\n',
        "# a part that nobody reads # prose: a quotation\n",
        "remaining = 1\n",
        "left = 1  # prose: the left margin\n",
        "print(left, held)\n",
    ],
)
def test_statements_uses_and_exceptions_are_not_reported(source: str) -> None:
    assert not list(findings("gateway/x.py", source))


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("gateway/a.html", "<p>A page that\nnobody reads</p>"),
        ("gateway/a.js", 'show("a text that nobody reads");'),
        ("gateway/a.js", "x = 1; // a comment that nobody reads"),
        ("gateway/a.yml", "  summary: an alert that nobody reads"),
        ("systemd/a.service", "Description=a service that nobody reads"),
        ("CHANGELOG.md", "An entry that nobody reads."),
    ],
)
def test_pages_scripts_rules_and_units_are_read(file: str, source: str) -> None:
    assert [one.kind for one in findings(file, source)] == ["odd"]


def test_name_of_a_test_needs_a_subject() -> None:
    poor = ["test_what_is_refused", "test_mistakes_are_told", "test_streams_are_nobodys"]
    source = "".join(f"def {name}(): ...\n" for name in [*poor, "test_refused_packet_is_logged"])
    assert [one.text for one in findings("tests/x.py", source)] == poor


@pytest.mark.parametrize(
    ("subject", "problem"),
    [
        ("store: fsync the directory after rename", None),
        ("Merge branch 'main' of a place with a name that is longer than sixty letters", None),
        ("wip", "no scope"),
        (f"store: {'a' * MOST_LETTERS}", "letters"),
        ("store: say what is missing", "makes a reader stop"),
    ],
)
def test_subject_of_a_commit_has_a_scope_and_a_length(subject: str, problem: str | None) -> None:
    found = subject_problem(f"{subject}\n\nA body.")
    assert problem in found if problem and found else found is problem
