"""Retries of requests to an object store that is busy for a moment (S3's 503 SlowDown, 500, 429).

In: a file system of s3fs. Out: the same file system, whose requests are repeated.
"""

import asyncio
import random
from typing import Any

STATUSES = (409, 429, 500, 502, 503, 504)
"""HTTP's response codes that ask for a later retry."""

PAUSES_S = (0.2, 0.4, 0.8, 1.6, 3.2)
"""Longest time, in seconds, before each retry of one request: the wait is drawn from the upper
half.
"""

RETRIES = 20
"""Size of the retry budget. An answer adds one retry, and each retry uses one. So requests are
repeated at a store that refuses some of them, but a store that refuses all of them does not cause
pauses for each object.
"""


def make_patient(fs: Any) -> None:
    """Let a file system of s3fs repeat each of its requests. Other file systems are unchanged."""
    if "s3" not in fs.protocol or "_call_s3" in vars(fs):
        return
    call, saved_up = fs._call_s3, RETRIES

    async def repeated(*arguments: Any, **more: Any) -> Any:
        nonlocal saved_up
        for pause in (*PAUSES_S, None):
            try:
                answer = await call(*arguments, **more)
            except Exception as error:
                if pause is None or status(error) not in STATUSES or not saved_up:
                    raise
                saved_up -= 1
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - jitter
            else:
                saved_up = min(RETRIES, saved_up + 1)
                return answer

    fs._call_s3 = repeated


def status(error: BaseException) -> int | None:
    """Return the HTTP status in an error of a client of object stores; None without one."""
    for one in (error, error.__cause__):
        response = getattr(one, "response", None)
        if isinstance(response, dict):
            found: int | None = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
            return found
        for name in ("code", "status", "status_code"):
            if isinstance(code := getattr(one, name, None), int):
                return code
    return None
