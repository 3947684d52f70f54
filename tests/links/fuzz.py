"""libFuzzer on the C parser of the link: `python -m tests.links.fuzz --seconds 600`.

The corpus stays in build/fuzz, so that the next run goes on from there. Exit 1 when an input makes the link fail; its file is named.
"""

import argparse
import subprocess
import sys
from pathlib import Path

from tests.links.twin import BUFFERS, SOURCES

HERE = Path(__file__).parent
WORK = HERE.parents[1] / "build" / "fuzz"


def fuzz(buffers: tuple[int, int, int], seconds: int) -> bool:
    """Fuzz the link with these buffers; tell whether it survived."""
    folder = WORK / "link-{}-{}-{}".format(*buffers)
    corpus = folder / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    program = folder / "fuzz"
    files = [HERE / "fuzz_link.c", *(SOURCES / f"ow_{name}.c" for name in ("link", "frame", "crc", "bytes"))]
    sizes = [f"-D{name}={size}" for name, size in zip(("OW_LINK_RX_MTU", "OW_LINK_WINDOW", "OW_LINK_TX_SIZE"), buffers, strict=True)]
    checks = ["-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all"]
    subprocess.run(["clang", "-std=c11", "-O1", "-g", *checks, *sizes, f"-I{SOURCES}", "-o", program, *files], check=True)
    options = [f"-max_total_time={seconds}", "-max_len=4096", "-print_final_stats=1", f"-artifact_prefix={folder}/"]
    ran = subprocess.run([program, corpus, *options], capture_output=True, text=True, check=False)
    inputs = next((line.split()[-1] for line in ran.stderr.splitlines() if "number_of_executed_units" in line), "?")
    print(f"link with buffers {buffers}: {inputs} inputs, {len(list(corpus.iterdir()))} in the corpus")
    if ran.returncode:
        print(ran.stderr[-4000:], file=sys.stderr)
    return ran.returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=600, help="for each set of buffers")
    seconds = parser.parse_args().seconds
    return 0 if all(fuzz(buffers, seconds) for buffers in BUFFERS) else 1


if __name__ == "__main__":
    sys.exit(main())
