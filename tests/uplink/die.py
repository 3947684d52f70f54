"""Run `onceway` and kill it by SIGKILL at one step: python -m tests.uplink.die before|after
MODULE:FUNCTION COUNT ARGS...

The step is call number COUNT of FUNCTION, a function of the product.
"""

import importlib
import os
import signal
import sys
from operator import attrgetter


def main() -> None:
    when, step, count, *args = sys.argv[1:]
    module, _, path = step.partition(":")
    *owner, name = path.split(".")
    target = importlib.import_module(module)
    holder = attrgetter(".".join(owner))(target) if owner else target
    original = getattr(holder, name)
    calls = 0

    def dying(*a, **k):
        nonlocal calls
        calls += 1
        if calls == int(count) and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*a, **k)
        if calls == int(count):
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(holder, name, dying)
    sys.argv = ["onceway", *args]
    from gateway.commands.main import main as onceway

    onceway()


main()
