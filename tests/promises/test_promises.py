"""`python -m tests.promises` notices each way in which a promise can lose its evidence."""

import tomllib
from pathlib import Path

import pytest

from tests.promises.__main__ import ROOT, TABLES, Audit, audit, audits, marks, report
from tests.promises.evidence import fault
from tests.promises.guide import WORDS, sentences, value_of
from tests.promises.writing import renewed, written

GUIDE = """# Always a heading

A batch is never sent twice. It waits. Rows wait
two minutes at most.

    onceway never    # a command

- Only one item.
- Another item, `always` in code.

| key | meaning |
|---|---|
| `a` | nothing. Again nothing |

```toml
always = 1
```
MQTT 5 on Debian 12 at QoS 2, by ![each picture](only.png).
"""
TEST = "tests/x/test_x.py::test_once"
VALUE = "gateway/uplink/x.py:WAIT_S = two minutes"
MARKS: dict[str, str | list[str]] = {
    "A batch is never": TEST,
    "Rows wait two minutes": "firmware/x.h:WAIT_MS = two minutes",
    "Only one": [TEST, "firmware/tests/test_y.c::counts"],
    "nothing": "none: a reason",
}
LAST = '{"wait": {"value": 6611.0, "unit": "B", "peer": 4200}}'
HEADER = "#define WAIT_MS 120000UL\n"
PYTHON = "def test_once() -> None: ...\ndef helper() -> None: ...\n"
C_FILE = "static void counts(void)\n{\n}\nint main(void) { RUN(counts); }\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in (
        ("tests/x/test_x.py", PYTHON),
        ("firmware/x.h", HEADER),
        ("tests/benchmarks/last.json", LAST),
        ("firmware/tests/test_y.c", C_FILE),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_sentence_an_item_and_a_row_are_promises_each_in_its_line() -> None:
    found = [(one.line, one.text) for one in sentences(GUIDE) if one.promises]
    assert found == [
        (3, "A batch is never sent twice."),
        (3, "Rows wait two minutes at most."),
        (8, "Only one item."),
        (13, "`a` | nothing. Again nothing"),
    ]


def test_a_comment_in_code_is_a_sentence_in_its_line() -> None:
    code = "    onceway never  # at most 3\n    # only here\n    [[only]]\n\n# Only a heading\n"
    found = [(one.line, one.text) for one in sentences(code)]
    assert found == [(1, "at most 3"), (2, "only here")]


def test_a_test_that_the_sentence_links_to_is_its_evidence(root: Path) -> None:
    link = "| only one | [{}](../../tests/x/test_x.py) |\n"
    found = audit("g.md", link.format("test_once"), {}, root)
    assert (len(found.held), found.open, found.faults) == (1, [], [])
    assert found.held[0][1] == [TEST]
    gone = audit("g.md", link.format("test_twice"), {}, root)
    assert gone.faults == ["g.md:1: pytest collects no tests/x/test_x.py::test_twice"]


@pytest.mark.parametrize(
    "word",
    [
        *WORDS.split("|"),
        "by default",
        "10 s",
        "4,096",
        "ten bytes",
        "one byte",
        "after three",
        "a minute",
    ],
)
def test_each_word_and_figure_makes_a_promise(word: str) -> None:
    assert [one.promises for one in sentences(f"It is {word} so. It is so.")] == [True, False]


@pytest.mark.parametrize(
    ("figure", "value"),
    [
        ("two minutes", 120),
        ("4 MB", 4_000_000),
        ("10 s", 10),
        ("65,000", 65_000),
        ("2 %", 0.02),
        ("7", 7),
        ("a minute", 60),
        ("128 bits", 16),
        ("510 k/s", 510_000),
        ("6.6 kB", 6600),
        ("11.4 years", 11.4 * 31_557_600),
    ],
)
def test_figures_are_read_as_guides_write_them(figure: str, value: float) -> None:
    assert value_of(figure) == pytest.approx(value)


def test_all_is_held_and_others_are_counted_apart(root: Path) -> None:
    found = audit("g.md", GUIDE, MARKS, root)
    assert (found.open, found.faults, found.kinds) == ([], [], (2, 1, 1))


def test_a_promise_without_evidence_is_listed_with_its_line(root: Path) -> None:
    found = audit("g.md", GUIDE, {key: MARKS[key] for key in list(MARKS)[1:]}, root)
    assert [(one.line, one.text) for one in found.open] == [(3, "A batch is never sent twice.")]
    text, right = report([found], {})
    assert "g.md:3: no evidence: A batch is never sent twice." in text
    assert not right
    assert report([found], {"g.md": 1})[1]


def test_a_range_of_words_covers_all_between(root: Path) -> None:
    found = audit("g.md", GUIDE, {"A batch is ... Again nothing": TEST}, root)
    assert (len(found.held), found.open, found.faults) == (4, [], [])


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("tests/x/test_x.py", "def test_renamed() -> None: ...", "pytest collects no"),
        ("tests/x/test_x.py", "class Other:\n    def test_once(self): ...", "pytest collects no"),
        ("firmware/tests/test_y.c", C_FILE.replace("RUN(counts)", ""), "pytest collects no"),
        ("firmware/x.h", "#define WAIT_MS 60000UL\n", "two minutes, WAIT_MS is 60"),
        ("firmware/x.h", "#define OTHER 1\n", "KeyError"),
    ],
)
def test_promise_whose_test_is_gone_is_an_error(
    root: Path, file: str, text: str, said: str
) -> None:
    (root / file).write_text(text)
    found = audit("g.md", GUIDE, MARKS, root).faults
    assert {said in one for one in found} == {True}, found


@pytest.mark.parametrize(
    ("words", "evidence", "said"),
    [
        ("It waits", TEST, "not a promise"),
        ("It hurries", TEST, "0 sentences have the words"),
        ("item", TEST, "2 sentences have the words"),
        ("Only one ... It waits", TEST, "no sentence behind"),
        ("Only one", "tests/x/test_z.py::test_z", "is not there"),
        ("Only one", "tests/x/test_x.py::helper", "pytest collects no"),
        ("Only one", "firmware/x.h:WAIT_MS = 5 s", "does not say '5 s'"),
        ("Only one", "someone knows", "names no test and no constant"),
        ("Only one", "none: ", "names no test and no constant"),
        ("Rows wait", "measured: wait = 2 s", "does not say '2 s'"),
        ("Rows wait", "measured: nothing = two minutes", "KeyError"),
    ],
)
def test_evidence_that_holds_nothing_is_an_error(
    root: Path, words: str, evidence: str, said: str
) -> None:
    found = audit("g.md", GUIDE, {**MARKS, words: evidence}, root)
    assert any(said in one for one in found.faults), found.faults
    assert not report([found], {"g.md": 9})[1]


@pytest.mark.parametrize(
    ("evidence", "figure"),
    [
        ("gateway/config/sections.py:UplinkSection.batch_count", "500"),
        ("gateway/config/sections.py:LimitsSection.outgoing_bytes", "4 MB"),
        ("gateway/config/sections.py:UplinkSection.batch_age_s", "one minute"),
    ],
)
def test_defaults_of_the_configuration_are_constants(evidence: str, figure: str) -> None:
    assert fault(f"{evidence} = {figure}", f"At most {figure}.", ROOT) == ""
    assert "the guide says 3" in fault(f"{evidence} = 3", "At most 3.", ROOT)


@pytest.mark.parametrize(
    ("figure", "now"), [("6.6 kB", ""), ("6,600 B", ""), ("6,611 B", ""), ("6.5 kB", "6.6 kB")]
)
def test_figure_of_a_benchmark_is_the_kept_one_rounded(root: Path, figure: str, now: str) -> None:
    found = fault(f"measured: wait = {figure}", f"It is {figure}.", root)
    assert found == (f"{figure} is {now} now: make docs" if now else "")
    assert fault("measured: peer of wait = 4.2 kB", "It is 4.2 kB.", root) == ""


def test_figures_are_written_from_the_benchmarks(root: Path) -> None:
    marks: dict[str, str | list[str]] = {"It is": "measured: wait = 7.1 kB"}
    found = renewed("It is 7.1 kB,\nor 17.1 kB.\n", f'"It is" = "{marks["It is"]}"', marks, root)
    assert found == ["It is 6.6 kB,\nor 17.1 kB.\n", '"It is" = "measured: wait = 6.6 kB"']


def test_constants_of_tests_are_read_and_not_imported(root: Path) -> None:
    (root / "tests/x/test_x.py").write_text("import nothing_there\nA, B = 50, 100\n")
    for evidence, said in (("B = 100", ""), ("A = 100", "A is 50"), ("C = 100", "KeyError")):
        found = fault(f"tests/x/test_x.py:{evidence}", "About 100.", root)
        assert said in found
        assert bool(found) == bool(said)


def test_a_limit_without_a_guide_is_an_error() -> None:
    assert report([Audit("a.md")], {})[1]
    assert not report([Audit("a.md")], {"b.md": 1})[1]


def test_no_table_is_of_a_guide_that_is_gone() -> None:
    assert marks().keys() <= {one.guide for one in audits()}


def test_figures_are_written_from_constants(root: Path) -> None:
    (root / "firmware/x.h").write_text("#define WAIT_MS 180000UL\n")
    marks: dict[str, str | list[str]] = {
        "Rows wait two minutes": "firmware/x.h:WAIT_MS = two minutes"
    }
    table = f'"Rows wait two minutes" = "{marks["Rows wait two minutes"]}"\n'
    guide, table = renewed(GUIDE, table, marks, root)
    assert "Rows wait\n3 minutes at most." in guide.replace("wait 3", "wait\n3")
    assert table == '"Rows wait 3 minutes" = "firmware/x.h:WAIT_MS = 3 minutes"\n'
    assert (
        audit("g.md", guide, {"Rows wait 3": "firmware/x.h:WAIT_MS = 3 minutes"}, root).faults == []
    )


@pytest.mark.parametrize(
    ("figure", "real", "text"),
    [
        ("two minutes", 120, "two minutes"),
        ("4 MB", 4_194_304, "4 MB"),
        ("64 MB", 128_000_000, "128 MB"),
        ("64 MiB", 32 << 20, "32 MiB"),
        ("7", 9, "9"),
        ("a minute", 120, "2 minutes"),
        ("65,000", 70_000, "70,000"),
        ("30 s", 45, "45 s"),
    ],
)
def test_a_figure_keeps_its_unit(figure: str, real: float, text: str) -> None:
    assert written(figure, real) == text


def test_no_figure_of_the_guides_is_older_than_its_constant() -> None:
    """If the test fails, run `make docs`."""
    for path in TABLES.glob("*.toml"):
        table = tomllib.loads(path.read_text())
        if "guide" in table:
            before = [(ROOT / table["guide"]).read_text(), path.read_text()]
            assert renewed(*before, table["promises"], ROOT) == before, table["guide"]
