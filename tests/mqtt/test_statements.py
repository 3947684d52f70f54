"""The list of normative statements and the citations in the tests match."""

from pathlib import Path

from tests.mqtt.statements import (
    BEGIN,
    END,
    PAGE,
    STANDARDS,
    Statement,
    find_tests,
    load,
    table,
    unshown,
)

PYTHON_FILE = '''
@mark.mqtt("MQTT-1.1.1-1")
def test_a() -> None:
    """[311:MQTT-2.2.2-2]"""


def helper() -> None:
    """MQTT-3.3.3-3"""
'''
C_FILE = """
/* MQTT-9.9.9-9 */
int x(void) {
}

/* [MQTT-4.4.4-4] */
static void b(void)
{
    /* MQTT-5.5.5-5 */
}
"""
IN_THESE_FILES = {
    "MQTT-1.1.1-1": ["test_a"],
    "311:MQTT-2.2.2-2": ["test_a"],
    "MQTT-4.4.4-4": ["b"],
    "MQTT-5.5.5-5": ["b"],
}


def test_the_list_is_complete() -> None:
    """Appendix B of MQTT 5.0 has 251 statements, and that of MQTT 3.1.1 has 141."""
    statements = load()
    assert [sum(item.standard == standard for item in statements) for standard in STANDARDS] == [
        251,
        141,
    ]
    assert len({item.citation for item in statements}) == len(statements)
    assert {item.who for item in statements} == {"server", "client", "both"}


def test_every_citation_names_a_statement() -> None:
    """The test finds typing errors, and citations of other editions."""
    known = {item.citation for item in load()}
    wrong = {
        f"{citation} in {test.path}: {test.name}"
        for citation, tests in find_tests().items()
        for test in tests
        if citation not in known
    }
    assert not wrong


def test_citations_are_found_in_markers_and_in_text(tmp_path: Path) -> None:
    for name, text in (("tests/test_x.py", PYTHON_FILE), ("firmware/tests/test_y.c", C_FILE)):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
    found = {
        citation: [test.name for test in tests] for citation, tests in find_tests(tmp_path).items()
    }
    assert found == IN_THESE_FILES


def test_the_table_says_what_is_missing() -> None:
    statements = [
        Statement("5.0", "1.0.0-1", "server", "one", ""),
        Statement("5.0", "1.0.0-2", "client", "two", ""),
        Statement("3.1.1", "1.0.0-3", "both", "three", "a reason"),
    ]
    assert unshown(statements, {}) == statements[:1]
    text = table(statements, {})
    assert "| 1.0.0-1 | server | one | **no test yet** |" in text
    assert "| 1.0.0-2 | client | two | a client's duty |" in text
    assert "| 1.0.0-3 | both | three | does not apply: a reason |" in text


def test_every_statement_that_binds_the_server_is_shown() -> None:
    assert unshown(load(), find_tests()) == []


def test_the_readme_has_the_table_of_today() -> None:
    shown = PAGE.read_text().partition(BEGIN)[2].partition(END)[0]
    assert shown.strip() == table(load(), find_tests()).strip(), (
        "run: python -m tests.mqtt.statements"
    )
