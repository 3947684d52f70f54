"""Where one reading is, for the page. In: a board and a sequence. Out: the places on this gateway
that know it, as `onceway where` has them; the table is the centre's.
"""

from dataclasses import asdict
from typing import Any

from gateway.config import Config
from gateway.errors import OncewayError
from gateway.uplink.landing import without_password
from gateway.uplink.spool import Spool
from gateway.uplink.where import doubts_of, in_gateway, unknown


def where(config: Config, device: str, sequence: int) -> dict[str, Any]:
    """places: as `Place`. unknown: what may have become of it, if there are none. doubts: of the
    board (`gateway/store/doubts.py`). error: why it cannot be found out.
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
