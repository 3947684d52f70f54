"""Add a simulated radio board to a gateway's device registry, as provisioning does, without
flashing it: `python -m hil.programs.enter_board REGISTRY NAME KEY BOARD PORT`. KEY: 16 bytes in
hexadecimal. A process of its own, so that the rig itself loads no code of the registry.
"""

import sys
from contextlib import closing
from pathlib import Path

from provisioning.identity import Identity
from provisioning.registry import Registry


def main(registry: str, name: str, key: str, board: str, port: str) -> None:
    with closing(Registry(Path(registry))) as opened:
        opened.finish(opened.begin(Identity(name, bytes.fromhex(key)), board, port), None)


if __name__ == "__main__":
    main(*sys.argv[1:])
