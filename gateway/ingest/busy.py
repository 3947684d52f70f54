"""Retries of requests to an object store that is busy for a moment (S3's 503 SlowDown, 500, 429).

In: a file system of s3fs. Out: the same file system, which now repeats each request that the store
answers in this way.
"""

import asyncio
import random
from typing import Any

STATUSES = (409, 429, 500, 502, 503, 504)
"""HTTP status codes after which a request is repeated."""

PAUSES_S = (0.2, 0.4, 0.8, 1.6, 3.2)
"""Longest wait before each retry of one request, in seconds. The actual wait is random, and at
least half as long.
"""

RETRIES = 20
"""Largest retry budget of a file system. Each successful request adds one retry to the budget, and
each retry uses one. If a store refuses only some requests, they are repeated. If it refuses all
requests, the budget is soon empty, and later requests fail without a wait.
"""


def make_patient(fs: Any) -> None:
    """Let a file system of s3fs repeat requests that fail with one of STATUSES. Other file systems
    are unchanged.
    """
    if "s3" not in fs.protocol or "_call_s3" in vars(fs):
        return
    call, saved_up = fs._call_s3, RETRIES

    async def repeated(*arguments: Any, **more: Any) -> Any:
        nonlocal saved_up
        pauses = iter(PAUSES_S)
        while True:
            try:
                answer = await call(*arguments, **more)
            except Exception as error:
                pause = next(pauses, None)
                if pause is None or status(error) not in STATUSES or not saved_up:
                    raise
                saved_up -= 1
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - jitter
            else:
                saved_up = min(RETRIES, saved_up + 1)
                return answer

    fs._call_s3 = repeated


def status(error: BaseException) -> int | None:
    """Return the HTTP status in an error of an object store's client, or in the cause of the error.
    None if neither has a status.
    """
    for one in (error, error.__cause__):
        response = getattr(one, "response", None)
        if isinstance(response, dict):
            found: int | None = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
            return found
        for name in ("code", "status", "status_code"):
            if isinstance(code := getattr(one, name, None), int):
                return code
    return None
