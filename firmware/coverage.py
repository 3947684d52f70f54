"""Branches of the library that the C tests take: `make coverage` in this folder.

In: the folder of tests that were built with --coverage, and have run. Out: a line per file of src,
and in the same folder `coverage.txt` with each branch that no test takes. Exit code 1 below LEAST.
The tests build the library with several sets of options: a branch counts if one of these builds
takes it.
"""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

LEAST = 95.0
"""Smallest share of the branches, in percent."""


def main(folder: Path) -> int:
    counts: Counter[tuple[str, int, int]] = Counter()
    for built in sorted(folder.rglob("built")):
        notes = [str(note.resolve()) for note in built.parent.glob("*.gcda")]
        command = ["gcov", "--json-format", "--stdout", "--branch-probabilities", *notes]
        done = subprocess.run(command, cwd=built.parent, capture_output=True, text=True, check=True)
        for line in filter(None, done.stdout.splitlines()):
            for file in json.loads(line)["files"]:
                for one in file["lines"]:
                    for number, branch in enumerate(one["branches"]):
                        place = Path(file["file"]).name, one["line_number"], number
                        counts[place] += branch["count"]
    return show(folder, counts)


def show(folder: Path, all_counts: Counter[tuple[str, int, int]]) -> int:
    """Print the share of taken branches for each file, and list the branches that no test takes.
    Return the exit code.
    """
    names = sorted({name for name, _, _ in all_counts})
    for name in names:
        counts = [count for (file, _, _), count in all_counts.items() if file == name]
        print(f"{name:24} {sum(map(bool, counts)):5} of {len(counts):5}")
    missing = sorted(place for place, count in all_counts.items() if not count)
    lines = [f"{name}:{line} branch {number}\n" for name, line, number in missing]
    (folder / "coverage.txt").write_text("".join(lines))
    share = 100 * (1 - len(missing) / len(all_counts)) if all_counts else 0.0
    print(f"{share:.1f} % of {len(all_counts)} branches are taken; {LEAST} % is the least")
    return int(share < LEAST)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
