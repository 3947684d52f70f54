"""Scripts, Makefiles and tests start only programs that are certainly installed: from the packages
in `.setup/debian-packages.txt`, from their dependencies, or from a minimal Debian. On a developer's
machine, a missing package in that list would stay unnoticed. `make try-clone` shows the same in a
minimal Debian.
"""

import os
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

from tests.package.programs import (
    HIDDEN,
    ROOT,
    makefile_programs,
    python_programs,
    shell_programs,
    tree,
)

BARE = set(
    """apt base-files base-passwd bash bsdutils coreutils dash debconf debianutils diffutils dpkg
    findutils grep gzip hostname init-system-helpers libc-bin libpam-modules libpam-modules-bin
    libpam-runtime login mawk mount ncurses-base ncurses-bin passwd perl-base sed sysvinit-utils tar
    tzdata util-linux""".replace("\n", " ").split()
)
"""Packages that are essential or required both in Debian 12 and in Debian 13. (e2fsprogs is
required only in Debian 12.)
"""
ALWAYS = {"gateway", "build", "centre"}
"""Groups of packages that `make setup` installs."""
ALSO = {
    ".setup/": {"package", "try"},
    "hil/": {"hil"},
    "tests/": {"test"},
    "tests/benchmarks/": {"bench"},
    "tests/links/fuzz.py": {"soak"},
}
"""Further groups of packages, by folder or file that needs them. The make target that runs the
folder or file installs them.
"""
OWNERS = {
    "debootstrap": "debootstrap",
    "systemd-nspawn": "systemd-container",
    "qemu-aarch64-static": "qemu-user-static",
    "qemu-aarch64": "qemu-user",
    "clang": "clang",
    "g++": "g++",
    "patch": "patch",
    "mkfs.ext4": "e2fsprogs",
}
"""Packages of programs that need not be on this machine. The test asks dpkg for the packages of all
other programs.
"""
FOLDERS = ("gateway", "hil", "provisioning", "tests", ".setup")
SCRIPTS = [
    *tree((".sh", "Makefile"), ".setup", "firmware", "hil", "tests"),
    *(ROOT / name for name in ("Makefile", ".ci/run")),
]
pytestmark = pytest.mark.skipif(
    not Path("/usr/bin/dpkg-query").exists(), reason="this is no Debian"
)


def listed(needs: set[str]) -> set[str]:
    lines = (ROOT / ".setup/debian-packages.txt").read_text().splitlines()
    words = [line.split() for line in lines if line and not line.startswith("#")]
    return {name for need, names, *_ in words if need in needs for name in names.split("|")}


@cache
def depends() -> dict[str, set[str]]:
    """Return what each installed package depends on. For a virtual package, return the packages
    that provide it.
    """
    shown = "${Package}\t${Pre-Depends}, ${Depends}\t${Provides}\n"
    found: dict[str, set[str]] = {}
    for line in output("dpkg-query", "--show", f"--showformat={shown}").splitlines():
        package, needed, provided = line.split("\t")
        found.setdefault(package, set()).update(names(needed))
        for name in names(provided):
            found.setdefault(name, set()).add(package)
    return found


def names(relation: str) -> set[str]:
    words = (word.strip() for word in re.split(r"[,|]", relation))
    return {re.split(r"[ :(]", word)[0] for word in words if word}


def installed_with(packages: set[str]) -> set[str]:
    """Return these packages with all their direct and indirect dependencies."""
    found: set[str] = set()
    waiting = set(packages)
    while waiting:
        found |= waiting
        waiting = set().union(*(depends().get(name, set()) for name in waiting)) - found
    return found


def owners(programs: set[str]) -> dict[str, str]:
    """Return the package of each program, if the program is on this machine or in OWNERS."""
    paths: dict[str, str] = {}
    """The program for each path that a package may list: paths of programs and of the targets of
    their symbolic links, each also without /usr.
    """
    for program in programs - OWNERS.keys():
        places = [Path(folder, program) for folder in ("/usr/bin", "/usr/sbin", "/bin", "/sbin")]
        path = next((place for place in places if place.exists()), None)
        while path is not None:
            paths |= {str(path): program, str(path).removeprefix("/usr"): program}
            path = path.parent / os.readlink(path) if path.is_symlink() else None
    found = {program: OWNERS[program] for program in programs & OWNERS.keys()}
    for line in output("dpkg", "--search", *paths).splitlines():
        package, _, path_said = line.partition(": ")
        if not package.startswith("diversion "):
            found[paths[path_said]] = package.partition(":")[0].partition(",")[0]
    return found


def output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True).stdout


@cache
def there(needs: frozenset[str]) -> set[str]:
    return installed_with(BARE | listed(set(needs)))


def needs_of(path: str) -> frozenset[str]:
    also = (needs for place, needs in ALSO.items() if path.startswith(place))
    return frozenset(ALWAYS.union(*also))


def test_programs_of_this_tree_are_in_a_list_of_packages() -> None:
    started = python_programs(tree((".py",), *FOLDERS))
    assert {"patch", "g++", "mkfs.ext4", "avr-gcc", "chromium", "sshd", "strace"} <= started.keys()
    for script in SCRIPTS:
        find = makefile_programs if script.name == "Makefile" else shell_programs
        for program in find(script.read_text()):
            started.setdefault(program, set()).add(script)
    packages = owners(set(started))
    assert packages["sed"] == "sed", "dpkg knows what is installed"
    lacking = [
        f"{name} starts {program} of {packages[program]}"
        for program in packages
        for name in sorted(str(path.relative_to(ROOT)) for path in started[program])
        if packages[program] not in there(needs_of(name))
    ]
    assert sorted(lacking) == []


def test_callers_of_programs_are_found(tmp_path: Path) -> None:
    """The example code starts programs in each way that occurs in this tree."""
    module = tmp_path / "module.py"
    module.write_text(
        """
import asyncio, shutil, subprocess
from subprocess import Popen
TOOLS = {"dict-key": 1}
def _run(*command): return subprocess.run(command)
def started(program): return Popen([program, "x"])
def made(): return ["by-return", "x"]
async def go(self):
    subprocess.run(made())
    subprocess.run(["plain", "x"], check=True)
    command = ["by-name", "x"]
    subprocess.check_output([*command, "y"])
    await asyncio.create_subprocess_exec("by-asyncio", "x")
    _run("/usr/sbin/by-function", "x")
    started("by-argument")
    if shutil.which("looked-up"): pass
    for tool in ("in-a-loop",): shutil.which(tool)
    subprocess.run(["sh", "-c", "in-shell | second && 'no'"])
    subprocess.run("as-string --option".split())
    subprocess.run(["sudo", "-n", "nice", "-n", "5", "Launched", "x"])
    subprocess.run(args=["by-keyword"])
class Tool:
    PROGRAM = "by-attribute"
    def start(self): subprocess.run([self.PROGRAM])
"""
    )
    found = python_programs([module])
    assert {
        *("plain", "by-name", "by-asyncio", "by-function", "by-argument", "looked-up"),
        *("by-return", "in-a-loop", "in-shell", "second", "as-string", "sh"),
        *("sudo", "nice", "Launched", "by-keyword", "by-attribute"),
    } == set(found)
    assert shell_programs(
        """
        set -e # comment
        if first "$(second x)"; then third | fourth; fi
        case $1 in
        word | other) fifth ;;
        esac
        find . -type f -exec ninth {} + | xargs tenth
        env A=1 timeout 5 eleventh x
        function_here() { VALUE=1 sixth \\
            seventh; }
        echo "no: $x" && function_here
        cat <<END
eighth
END
        """
    ) == {"first", "second", "third", "fourth", "fifth", "sixth", "cat"} | {
        *("find", "ninth", "xargs", "tenth", "env", "timeout", "eleventh")
    }
    assert makefile_programs(
        "X := $(shell one x)\nall: y\n\t@two $(X) && $(MAKE) -C z; three $$x\n\t-five\n"
    ) == {"one", "two", "make", "three", "five"}


def test_no_module_starts_a_program_in_a_way_that_is_not_read() -> None:
    paths = [path for path in tree((".py",), *FOLDERS) if path.parent != Path(__file__).parent]
    assert [str(path) for path in paths if HIDDEN.search(path.read_text())] == []
    for text in ("os.system('x')", "subprocess.getoutput('x')", "create_subprocess_shell('x')"):
        assert HIDDEN.search(text)
