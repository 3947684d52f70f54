"""Settings of gateway and uplink in a run: the rig's own, changed by the bench. In: `[config]` of a
bench. Out: the sections of gateway.toml that name no port.
"""

from collections.abc import Mapping
from typing import Any

Sections = dict[str, dict[str, Any]]


def merged(
    config: Mapping[str, Mapping[str, Any]], readings: int, data: str, landing: str, listens: bool
) -> Sections:
    """Return the sections of gateway.toml: the rig's own, overridden by `config`. Batches are
    small, so that a run can break many of them. data: folder of the gateway. landing: URL of the
    landing zone. listens: whether programs connect over TCP.
    """
    sections: Sections = {
        "gateway": {"name": "site", "data": data, "trust_clock": True},
        "uplink": {
            "landing": landing,
            "batch_count": max(2, readings // 20),
            "batch_age_s": 2,
            "batch_bytes": 100_000,
            "retry_s": 2,
        },
    }
    if listens:
        sections["spool"] = {"topics": ["sensors/#"]}
    for name, settings in config.items():
        sections[name] = {**sections.get(name, {}), **settings}
    return sections
