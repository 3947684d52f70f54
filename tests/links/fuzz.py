"""libFuzzer on the parsers of the boards' C code, for frames of the links and MQTT packets: `python
-m tests.links.fuzz --seconds 600`.

The corpus stays in build/fuzz for the next run. If an input makes the code fail, the exit code is
1, and the input's file is named.
"""

import argparse
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tests.links.twin import BUFFERS, SOURCES

HERE = Path(__file__).parent
WORK = HERE.parents[1] / "build" / "fuzz"


class Target(NamedTuple):
    """A fuzz target. name: name of its folder. files: C sources. sizes: compiler options that
    configure the library.
    """

    name: str
    files: list[Path]
    sizes: list[str]


def _target(
    program: str, sources: tuple[str, ...], buffers: tuple[int, int, int], *, keys: bool = False
) -> Target:
    library = (SOURCES / f"ow_{name}.c" for name in ("options", *sources))
    files = [HERE / f"fuzz_{program}.c", *library]
    names = ("OW_LINK_RX_MTU", "OW_LINK_WINDOW", "OW_LINK_TX_SIZE")
    sizes = [f"-D{name}={size}" for name, size in zip(names, buffers, strict=True)]
    sizes.append(f"-DOW_KEYS={keys:d}")
    name = "{}-{}-{}-{}".format(program, *buffers) + "-keys" * keys
    return Target(name, files, sizes)


LINK = ("link", "frame", "crc", "cmac", "bytes")
TARGETS = [
    _target("link", LINK, buffers, keys=keys) for buffers in BUFFERS for keys in (True, False)
]
TARGETS += [_target("packet", ("packet_read", "bytes"), BUFFERS[0])]
TURN = ("turn", "ccm", "pack", "cmac", "airtime", "bytes")
TARGETS += [_target("turn", TURN, BUFFERS[0], keys=True)]


def fuzz(target: Target, seconds: int) -> bool:
    """Compile a target and fuzz it for some seconds. Return whether no input made it fail."""
    folder = WORK / target.name
    corpus = folder / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    program = folder / "fuzz"
    checks = ["-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all"]
    subprocess.run(
        [
            "clang",
            "-std=c11",
            "-O1",
            "-g",
            *checks,
            *target.sizes,
            f"-I{SOURCES}",
            "-o",
            program,
            *target.files,
        ],
        check=True,
    )
    options = [
        f"-max_total_time={seconds}",
        "-max_len=4096",
        "-print_final_stats=1",
        f"-artifact_prefix={folder}/",
    ]
    ran = subprocess.run([program, corpus, *options], capture_output=True, text=True, check=False)
    inputs = next(
        (
            line.split()[-1]
            for line in ran.stderr.splitlines()
            if "number_of_executed_units" in line
        ),
        "?",
    )
    print(f"{target.name}: {inputs} inputs, {len(list(corpus.iterdir()))} in the corpus")
    if ran.returncode:
        print(ran.stderr[-4000:], file=sys.stderr)
    return ran.returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=600, help="for each target")
    seconds = parser.parse_args().seconds
    return 0 if all(fuzz(target, seconds) for target in TARGETS) else 1


if __name__ == "__main__":
    sys.exit(main())
