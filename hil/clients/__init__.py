"""Programs that connect to the gateway over TCP, in addition to the boards: `[[client]]` and
`[[subscriber]]` in a bench, each its own process. `publisher.py` publishes with paho, `strict.py`
exactly by the standard; `subscriber.py` subscribes. `hil/devices/kept.py` runs the project's own
publisher. `devices/client.py` and `devices/subscriber.py` start and record these programs in the
history. A client's publications are checked against its own journal, which names each publication
before its first byte is sent.

`walk.py` tries the options of MQTT that `walk.toml` lists.
"""

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

IDENTIFIERS = 65_535
"""Number of packet identifiers that MQTT has."""
DEFAULT = "default"
"""Value of a setting in `walk.toml` that the bench leaves alone."""


def records(config: Mapping[str, Mapping[str, Any]] | None = None) -> dict[str, dict[str, Any]]:
    """Return the records of `walk.toml` by name. config: sections of gateway.toml that a bench
    sets; then only the records for such a gateway.
    """
    found = tomllib.loads((files(__name__) / "walk.toml").read_text())["record"]
    return {
        one["name"]: one
        for one in found
        if config is None
        or all(
            config.get(section, {}).get(key, DEFAULT) == value
            for name, value in one.get("config", {}).items()
            for section, _, key in [name.partition(".")]
        )
    }
