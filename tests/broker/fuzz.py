"""Coverage-guided fuzzing of the broker: `python -m tests.broker.fuzz --inputs 1000000`.

The first byte of an input decides how the others arrive (`streams.py`); the others are the bytes of
a connection. Atheris changes inputs so that they reach new code. It begins with the example
packets, and its corpus stays in build/fuzz/broker for the next run. Atheris has wheels for x86-64
only: on other machines, inputs are changed at random, and the run says so. If an input causes an
exception, the input is printed or stored, and the exit code is 1.
"""

import argparse
import random
import subprocess
import sys
import time
from collections import deque
from pathlib import Path

WORK = Path(__file__).parents[2] / "build" / "fuzz" / "broker"
FRESH = 500
"""Number of inputs for one broker. The next input gets a new broker, so no state accumulates, and a
failure shows soon after its cause.
"""
LONGEST = 512


class Target:
    """A callable that gives an input to a broker. It imports the product only when it is created,
    so that atheris can instrument the product.
    """

    def __init__(self) -> None:
        from tests.broker.harness import World
        from tests.broker.streams import Manner, feed

        self._make, self._manner, self._feed = World, Manner.of, feed
        self.inputs = 0

    def __call__(self, data: bytes) -> None:
        if self.inputs % FRESH == 0:
            self._world = self._make(queue_messages=200, queue_bytes=20_000)
        self.inputs += 1
        if data:
            self._feed(self._world, data[1:], self._manner(data[0]))


def seeds() -> list[bytes]:
    """Return an input for each example packet of each version. In one half of the inputs, the
    client has connected before. In the other half, the bytes begin with a CONNECT.
    """
    from gateway.mqtt.encode import encode
    from gateway.mqtt.packets import Connect, Version
    from tests.broker.streams import PACKETS

    found = []
    for index, version in enumerate(Version):
        greeted, raw = bytes((index << 6,)), bytes((index << 6 | 1,))
        connect = encode(Connect("c", version), version)
        found += [greeted + packet for packet in PACKETS[version]] + [
            raw + connect + packet for packet in PACKETS[version]
        ]
    return found


def guided(inputs: int, seed: int) -> int:
    """Run atheris in a separate process, because libFuzzer ends its process. Return the exit
    code.
    """
    corpus = WORK / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(seeds()):
        (corpus / f"example-{number}").write_bytes(data)
    options = [
        f"-runs={inputs}",
        f"-seed={seed}",
        f"-max_len={LONGEST}",
        f"-artifact_prefix={WORK}/",
        "-print_final_stats=1",
        corpus,
    ]
    said: deque[str] = deque(maxlen=80)
    done = "?"
    command = [sys.executable, "-m", "tests.broker.fuzz", "--atheris", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, errors="replace") as process:
        assert process.stderr is not None
        for line in process.stderr:
            said.append(line)
            if "pulse" in line:
                print(f"broker: {line.split()[0].lstrip('#')} of {inputs}", file=sys.stderr)
            elif "number_of_executed_units" in line:
                done = line.split()[-1]
    print(f"broker: {done} inputs, seed {seed}, {len(list(corpus.iterdir()))} in the corpus")
    if process.returncode:
        print("".join(said), file=sys.stderr)
    return 1 if process.returncode else 0


def unguided(inputs: int, seed: int) -> int:
    """Run example packets with bytes changed at random. Return the exit code."""
    from gateway.mqtt.packets import Side, Version
    from tests.mqtt.fuzz import damaged

    print("there is no atheris here: inputs are changed at random", file=sys.stderr)
    chance, target, started = random.Random(seed), Target(), time.monotonic()
    for number in range(inputs):
        data = chance.randbytes(1) + damaged(chance, chance.choice(list(Version)), Side.CLIENT)
        try:
            target(data)
        except Exception:
            print(f"input {number} of seed {seed}: {data.hex()}", file=sys.stderr)
            raise
    print(f"broker: {inputs} inputs, seed {seed}, in {time.monotonic() - started:.0f} s")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    try:
        import atheris  # noqa: F401
    except ImportError:
        return unguided(arguments.inputs, arguments.seed)
    return guided(arguments.inputs, arguments.seed)


def run_atheris(arguments: list[str]) -> None:
    import atheris

    with atheris.instrument_imports(include=["gateway.mqtt", "gateway.broker"]):
        target = Target()
    atheris.Setup([sys.argv[0], *arguments], target)
    atheris.Fuzz()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--atheris"]:
        run_atheris(sys.argv[2:])
    else:
        sys.exit(main())
