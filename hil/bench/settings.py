"""The settings of gateway and uplink in a run: the rig's own, and what the bench wants otherwise.

In: `[config]` of a bench. Out: all sections of gateway.toml but its ports, and what is wrong with
them.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from gateway.config import Config
from gateway.config.mistakes import explain
from hil.bench.mistakes import line_of

Sections = dict[str, dict[str, Any]]


def own_batch_count(readings: int) -> int:
    return max(2, readings // 20)


def merged(
    config: Mapping[str, Mapping[str, Any]], readings: int, data: str, landing: str, listens: bool
) -> Sections:
    """Small batches, so that a run has many of them to break, and short waits in an outage. data: a
    folder; landing: a URL; listens: whether somebody comes over TCP.
    """
    sections: Sections = {
        "gateway": {"name": "site", "data": data, "trust_clock": True},
        "uplink": {
            "landing": landing,
            "batch_count": own_batch_count(readings),
            "batch_age_s": 2,
            "retry_s": 2,
        },
    }
    if listens:
        sections["spool"] = {"topics": ["sensors/#"]}
    for name, settings in config.items():
        sections[name] = {**sections.get(name, {}), **settings}
    return sections


def refused(config: object, gateways: int, text: str) -> list[str]:
    """A sentence for each setting that the gateway would refuse, with its line in the text of the
    bench. config: as it stands in a bench; what has not the form of sections the bench refuses.
    gateways: how many there are.
    """
    if not isinstance(config, dict) or not all(isinstance(one, dict) for one in config.values()):
        return []
    ports = {"serial": [{"port": "/dev/ttyACM0"}]}
    sections = merged(config, 1, "/data", "file:///landing", True)
    if gateways > 1:
        names = [sections["gateway"]["name"], *(f"other-{one}" for one in range(1, gateways))]
        members = {name: f"127.0.0.1:{port}" for port, name in enumerate(names, 1)}
        sections["site"] = {**sections.get("site", {}), "members": members}
    try:
        Config.model_validate({**ports, **sections})
    except ValidationError as error:
        return [
            (f"line {line}: " if (line := line_of(text, ("config", *one["loc"]))) else "")
            + f"[config]: {explain(one)}"
            for one in error.errors()
        ]
    return []
