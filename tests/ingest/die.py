"""Run the ingest's script and kill it at one step: spark-submit tests/ingest/die.py
before|after|interrupted MODULE:FUNCTION COUNT ARGS...

The step is call number COUNT of FUNCTION, a function of the product. `before` and `after` kill the
whole process group by SIGKILL, Java included, so the script must be the leader of a group.
`interrupted` sends SIGTERM to the script, and raises an error after Spark has stopped the query,
like a cancelled Spark job.
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
