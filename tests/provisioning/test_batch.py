"""A list of boards is checked completely before the first board is written. Errors name the file
and the line.
"""

from pathlib import Path

import pytest

from gateway.errors import OncewayError
from provisioning import batch


def _list(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "boards.csv"
    path.write_text(text, newline="")
    return path


def test_device_list_is_read_with_and_without_board_kinds(tmp_path: Path) -> None:
    entries = batch.read(_list(tmp_path, "name,port,board\na,/dev/ttyACM0,nano\nb,/dev/ttyACM1,\n"))
    assert [(entry.line, entry.name, entry.port, entry.board.name) for entry in entries] == [
        (2, "a", "/dev/ttyACM0", "nano"),
        (3, "b", "/dev/ttyACM1", "uno"),
    ]
    assert batch.read(_list(tmp_path, "port,name\n/dev/ttyACM0,a\n"))[0].name == "a"


def test_device_list_saved_by_a_spreadsheet_is_read(tmp_path: Path) -> None:
    """The list has a byte order mark, Windows line ends, quotes, and empty lines."""
    entries = batch.read(
        _list(tmp_path, '\ufeffname,port\r\n"a",/dev/ttyACM0\r\n\r\nb,/dev/ttyACM1\r\n\r\n')
    )
    assert [(entry.line, entry.name, entry.port) for entry in entries] == [
        (2, "a", "/dev/ttyACM0"),
        (4, "b", "/dev/ttyACM1"),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"boards\.csv:1: the first line must name the columns"),
        ("name,colour\na,red\n", r"boards\.csv:1: the first line must name the columns"),
        ("name,port,name\na,p,b\n", r"boards\.csv:1: the first line must name the columns"),
        ("name,port\n", r"boards\.csv: the list names no board"),
        ("name,port\na,p\0q\n", r"boards\.csv:2: 'p\\x00q' is not a valid port"),
        ("name,port\na b,p\n", r"boards\.csv:2: 'a b' is not a valid device name"),
        ("name,port\na,p\na,q\n", r"boards\.csv:3: the name 'a' is on line 2"),
        ("name,port\na\n", r"boards\.csv:2: this line and the first line differ in"),
        ("name,port\na,p,q\n", r"boards\.csv:2: this line and the first line differ in"),
        ("name,port,board\na,p,due\n", r"boards\.csv:2: no board is called 'due'"),
    ],
)
def test_wrong_line_of_a_device_list_is_an_error_with_its_number(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(OncewayError, match=message):
        batch.read(_list(tmp_path, text))
