"""The places of one reading, for the page. In: a board and a sequence. Out: the places in this
gateway's spool and batches, as in `onceway where`. The gateway does not know the Spark table.
"""

from dataclasses import asdict
from typing import Any

from gateway.config import Config
from gateway.errors import OncewayError
from gateway.uplink.landing import without_password
from gateway.uplink.spool import Spool
from gateway.uplink.where import doubts_of, in_gateway, unknown


def where(config: Config, device: str, sequence: int) -> dict[str, Any]:
    """Return where a reading is, in a dict with these keys. places: see
    `gateway.uplink.where.Place`. unknown: where the reading may be if there are no places, else
    None. doubts: answers that the board got while its session was suspect
    (`gateway/store/doubts.py`). error: why the reading cannot be looked up; present only in this
    case.
    """
    landing = without_password(config.uplink.landing).rstrip("/") if config.uplink else None
    try:
        with Spool(config.gateway.data, to_read=True) as spool:
            places = [asdict(place) for place in in_gateway(spool, device, sequence, landing)]
            doubts = [item._asdict() for item in doubts_of(config.gateway.data, device)]
            lost = None if places else unknown(spool, device, sequence)
            return {"places": places, "unknown": lost, "doubts": doubts}
    except OncewayError as error:
        return {"places": [], "unknown": None, "error": str(error)}
