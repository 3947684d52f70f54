"""Compare the packages of the Debian package with the advisories that the package index delivers.

In: `gateway.txt`, and pip-audit's answer. Out: each known fault, each package that could not be
looked up, and the parts that this check does not cover. Run by `make audit`. Exit code 0: each
package was looked up, and none has a known fault. 1: a package has a known fault. 3: no fault was
found, but a package could not be looked up.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FAULTS, NOT_LOOKED_UP = 1, 3
BLIND = (
    "C libraries inside of wheels (OpenSSL in cryptography, zstd and Arrow in pyarrow, libuv in"
    " uvloop): their faults count when the package has an advisory of its own",
    "Python and SQLite: Debian's, with Debian's security updates",
    "faults that nobody has reported",
)


def pinned(text: str) -> dict[str, str]:
    """Return the version of each package in a lock file, by the package's normalised name. text:
    the content of the lock file.
    """
    found = re.findall(r"^([\w.-]+)==([^\s;\\]+)", text, re.MULTILINE)
    return {normalised(name): version for name, version in found}


def normalised(name: str) -> str:
    """Return a package's name in the form of the package index (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def verdict(wanted: dict[str, str], report: dict[str, Any]) -> tuple[list[str], int]:
    """Return the lines for a person, and the exit code. report: pip-audit's JSON."""
    lines, looked_up = [], set()
    for item in report.get("dependencies", ()):
        name = normalised(item["name"])
        if item.get("version") != wanted.get(name):
            continue
        looked_up.add(name)
        for fault in item.get("vulns", ()):
            fixed = ", ".join(fault.get("fix_versions", ())) or "no version yet"
            known = " ".join([fault["id"], *fault.get("aliases", ())])
            lines.append(f"{name} {item['version']}: {known}, fixed in {fixed}")
    faults = len(lines)
    lacking = sorted(wanted.keys() - looked_up)
    if lacking:
        lines.append(f"not looked up, nothing is known: {', '.join(lacking)}")
    lines.append(f"{len(looked_up)} of {len(wanted)} packages looked up, {faults} known faults")
    lines += [f"not seen here: {text}" for text in BLIND]
    return lines, FAULTS if faults else NOT_LOOKED_UP if lacking else 0


def main() -> int:
    """Run pip-audit, and print the result. Return this program's exit code: pip-audit's exit code
    does not show that packages were skipped.
    """
    file = HERE / "gateway.txt"
    command = [sys.executable, "-m", "pip_audit", "--requirement", str(file), "--disable-pip"]
    command += ["--require-hashes", "--format", "json", "--progress-spinner", "off"]
    done = subprocess.run(
        [*command, *sys.argv[1:]],
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        report = json.loads(done.stdout)
    except ValueError:
        print(done.stderr.strip() or "pip-audit has printed nothing", file=sys.stderr)
        report = {}
    lines, code = verdict(pinned(file.read_text()), report)
    print(*lines, sep="\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
