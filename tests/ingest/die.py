"""Run the ingest's script and die by SIGKILL at one step: spark-submit tests/ingest/die.py
before|after|interrupted MODULE:FUNCTION COUNT ARGS...

The step is a function of the product, named from outside; the product knows nothing of it. COUNT:
die at that call of it. Start it as the leader of a process group: the whole group dies, Java and
all. interrupted: send SIGTERM to the script instead, and fail when Spark has stopped the query, as
a cancelled Spark job does.
"""

import importlib
import os
import signal
import sys
import time
from operator import attrgetter
from typing import Any

from gateway.ingest.jobs import stream
from gateway.ingest.jobs.script import run_script


def main() -> None:
    when, step, count, *arguments = sys.argv[1:]
    module, _, path = step.partition(":")
    *owner, name = path.split(".")
    target: Any = importlib.import_module(module)
    holder = attrgetter(".".join(owner))(target) if owner else target
    original = getattr(holder, name)
    calls = 0

    def dying(*a: Any, **k: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == int(count) and when == "before":
            os.killpg(0, signal.SIGKILL)
        if calls == int(count) and when == "interrupted":
            stream.PATIENCE_S = 0.0
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)
            raise RuntimeError("Job 7 was cancelled")
        result = original(*a, **k)
        if calls == int(count) and when == "after":
            os.killpg(0, signal.SIGKILL)
        return result

    setattr(holder, name, dying)
    run_script(lambda: stream.run(stream.parse_arguments(arguments)))


main()
