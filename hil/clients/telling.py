"""What a client says of itself: JSON Lines on standard output, each with the machine's monotonic
time, on its way before the call returns. And what its messages say of themselves.
"""

import json
import sys
import time

from hil.formats.packets import Properties, Property

INCARNATION = 1
"""Of each client."""
SESSION_EXPIRY = 86_400  # s


READS_REASON_CODES = ("onceway-reads-reason-codes", "1")
"""The user property of CONNECT that asks the gateway for reason codes. Otherwise it ends the
connection when it refuses a message for now.
"""


def tell(event: str, **data: object) -> None:
    sys.stdout.write(json.dumps({"t": time.monotonic_ns(), "event": event, **data}) + "\n")
    sys.stdout.flush()


def topic_of(name: str) -> str:
    return f"sensors/{name}/data"


def identity(sequence: int) -> Properties:
    user = Property.USER_PROPERTY
    return (user, ("incarnation", str(INCARNATION))), (user, ("seq", str(sequence)))
