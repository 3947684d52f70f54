"""Targets of the Debian package. Out: the releases of Debian, each with its version of Python, and
the architectures, each with the platform names of its wheels; also the target of this machine.
"""

import subprocess
from dataclasses import dataclass

_GLIBC = (36, 35, 34, 31, 28, 27, 26, 24, 17, 12, 5)
"""Minor versions of the C library that wheels are built for; Debian 12 has 2.36."""
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


@dataclass(frozen=True, slots=True)
class Target:
    """A target. release: major version of Debian. python: minor version of Python 3. architecture:
    Debian's name for it.
    """

    release: int
    python: int
    architecture: str

    @property
    def machine(self) -> str:
        """The architecture's name for compilers and wheels."""
        return _MACHINES[self.architecture]

    @property
    def pip(self) -> list[str]:
        """Options that make pip choose wheels for the target, whatever machine it runs on."""
        tags = [f"manylinux_2_{minor}" for minor in _GLIBC] + ["manylinux2014", "manylinux1"]
        platforms = [part for tag in tags for part in ("--platform", f"{tag}_{self.machine}")]
        return [
            *("--only-binary", ":all:", "--implementation", "cp"),
            *("--python-version", f"3.{self.python}", *platforms),
        ]

    @property
    def name(self) -> str:
        return f"deb{self.release}_{self.architecture}"


TARGETS = [
    Target(release, python, architecture)
    for release, python in ((12, 11), (13, 13))
    for architecture in _MACHINES
]


def this_machine() -> Target:
    """Return the target of this machine. Raises SystemExit when there is none."""
    architecture = _output("dpkg", "--print-architecture")
    python = int(_output("/usr/bin/python3", "-c", "import sys; print(sys.version_info.minor)"))
    for target in TARGETS:
        if (target.python, target.architecture) == (python, architecture):
            return target
    raise SystemExit(
        f"error: there is no package for Python 3.{python} on {architecture}; there is one for"
        f" {', '.join(target.name for target in TARGETS)}"
    )


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
