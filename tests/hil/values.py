"""`python -m tests.hil.values [SABOTAGE …]`: the product's decoder decodes payloads of the rig's
clients, and the rig's judge compares the values, without a gateway and without Spark.

In: names of sabotages; `-` is the unpatched product. Out: a line for each, with the judge's first
complaint. If a sabotage of the decoder is not noticed here, no bench notices it. Each sabotage runs
in its own process, forked from one that has imported the libraries.
"""

import importlib
import importlib.util
import os
import random
import sys
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pandas  # noqa: F401
import pyarrow as pa
import pyarrow.compute

from hil.clients.payloads import senml_of
from hil.judge import readings
from hil.judge.publication import Sighting
from hil.judge.senml import decode
from tests.hil.sabotage import ROOT, catalogue, edited

MESSAGES, BATCH = 450, 100
DEVICE, TOPIC, GATEWAY = "client-1", "sensors/client-1/data", "site"
RECEIVED = 1_700_000_000_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def harm(name: str) -> None:
    """Import the file that a sabotage changes, in its changed form."""
    file, text = edited(catalogue()[name], ROOT)
    module = ".".join(file.relative_to(ROOT).with_suffix("").parts)
    importlib.import_module(module.rpartition(".")[0])
    spec = importlib.util.spec_from_file_location(module, file)
    assert spec
    sys.modules[module] = importlib.util.module_from_spec(spec)
    exec(compile(text, file, "exec"), sys.modules[module].__dict__)


def wrong(seed: int) -> Iterator[str]:
    from gateway.ingest.payload.decoded import columns

    rng = random.Random(f"{seed}/{DEVICE}")
    payloads = [senml_of(DEVICE, number, rng) for number in range(1, MESSAGES + 1)]
    for begin in range(0, MESSAGES, BATCH):
        batch = payloads[begin : begin + BATCH]
        received = pa.array([RECEIVED] * len(batch), pa.timestamp("us", "UTC"))
        lists, why = columns(pa.array([DEVICE] * len(batch)), pa.array(batch), received)
        told = zip(batch, lists.to_pylist(), why.to_pylist(), strict=True)
        for number, (payload, records, reason) in enumerate(told, begin + 1):
            if found := _judged(payload, records or [], reason):
                yield f"message {number}: {found}"


def _judged(payload: bytes, records: list[dict[str, Any]], reason: str | None) -> str | None:
    due = decode(payload)
    if (reason is None) != (due is not None):
        return f"`undecodable` is {reason!r}, and the payload is another"
    seen = readings.Seen()
    for index, record in enumerate(records):
        moment, data = record["time"], record["data"]
        row = {
            **record,
            "index": index,
            "time": None if moment is None else round((moment - EPOCH).total_seconds() * 1e6),
            "data": None if data is None else data.hex(),
            "gateway": GATEWAY,
            "topic": TOPIC,
            "received": RECEIVED,
        }
        seen.take(row)
    about = {"received": RECEIVED, "topic": TOPIC}
    published = Sighting(0, due, payload, origin=f"{GATEWAY}/0a1b2c3d", columns=about)
    found = readings.judge(DEVICE, [published], seen)
    return None if found is None else f"{found[0]}: {found[1]}"


def tell(name: str) -> None:
    try:
        if name != "-":
            harm(name)
        found = next((text for seed in (1, 2, 3) for text in wrong(seed)), "all as it must be")
    except Exception:
        found = "broke: " + traceback.format_exc().splitlines()[-1]
    print(f"{name}: {found}", flush=True)


if __name__ == "__main__":
    for one in sys.argv[1:] or ["-"]:
        if not (child := os.fork()):
            tell(one)
            os._exit(0)
        os.waitpid(child, 0)
