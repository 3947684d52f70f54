"""A test of the landing place for `onceway doctor` and `onceway gateway check-config --connect`.

In: the settings of the uplink. Out: the way in which the place refuses a name in use, or an error.
The test writes its own files below the gateway's folder, and removes them.
"""

from contextlib import closing

from gateway.config import UplinkSection
from gateway.uplink import owner
from gateway.uplink.landing import Way, open_landing


def try_place(settings: UplinkSection, gateway: str, landed: int = 0) -> Way:
    """Connect to the landing place, and return the way in which it refuses an existing name.
    landed: number of landed batches of this gateway. If there are any, the place must have an owner
    mark, so that an empty folder is not mistaken for the place. Raises OncewayError.
    """
    with closing(open_landing(settings.landing, settings.options, settings.shared)) as place:
        place.epochs(gateway)
        owner.must_be_the_place(place, gateway, landed)
        return place.prove(gateway)
