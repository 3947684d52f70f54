"""`make coverage` counts the branches of C that a program takes, and lists the others."""

import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

from tests.coverage import Counted, of_c, read_gcov

PROGRAM = """\
int main(int count, char **words) {
    if (count > 2)
        return 1;
    return count == 1 ? 0 : words[1][0];
}
"""


@pytest.mark.parametrize(("words", "taken"), [((), 2), (("a", "b"), 1)])
def test_branches_of_c_are_counted(words: tuple[str, ...], taken: int, tmp_path: Path) -> None:
    source = tmp_path / "src" / "program.c"
    source.parent.mkdir()
    source.write_text(PROGRAM)
    program = tmp_path / "objects" / "program"
    program.parent.mkdir()
    build = ["gcc", "--coverage", "-O0", source, "-o", program]
    subprocess.run(build, cwd=program.parent, check=True)
    subprocess.run([program, *words], check=False)
    found = defaultdict(Counted)
    of_c(read_gcov(program.parent), found)
    counted = found["firmware/src"]
    assert (counted.branches, counted.taken) == (4, taken)
    assert ("firmware/src/program.c:3" in counted.holes) is not bool(words)
