"""The configuration of each gateway of a run, and the folders that it needs. In: a folder, the
names of devices, a bench. Out: gateway.toml, as a user would write it.
"""

import json
from collections.abc import Mapping
from typing import Any

from hil.bench.bench import Bench
from hil.bench.plan import merged
from hil.formats.topics import HERE, STATES, THERE
from hil.observe.folder import Folder
from hil.programs.air import MODEM


def batch_limits(bench: Bench) -> dict[str, Any]:
    """Return the largest number of rows of a batch, and the age and size at which it is cut."""
    uplink = merged(bench.config, bench.readings, "", "", listens=False)["uplink"]
    return {key: uplink[key] for key in ("batch_count", "batch_age_s", "batch_bytes")}


def write_config(
    folder: Folder,
    devices: list[str],
    bench: Bench,
    port: int | None = None,
    members: Mapping[str, str] | None = None,
    other: int | None = None,
    web: str | None = None,
) -> None:
    """Write the configuration. port: listener for commands. members: all gateways of the site, with
    their addresses for this gateway. other: port of the broker at the end of the bridge. web:
    ADDRESS:PORT of `/metrics`.
    `hil.bench.files` has checked that the gateway accepts the bench's values.
    """
    data, landing = str(folder.data), f"file://{folder.mount}"
    sections = merged(bench.config, bench.readings, data, landing, bool(port))
    if members:
        sections["gateway"]["name"] = folder.gateway
        sections["site"] = {**sections.get("site", {}), "bind": members[folder.gateway]}
        sections["site.members"] = dict(members)
    lines = []
    for name, settings in sections.items():
        lines += [
            f"[{name}]",
            *(f"{key} = {json.dumps(value)}" for key, value in settings.items()),
            "",
        ]
    if bench.air:
        numbers = ", ".join(f'"{name}" = {number}' for name, number in bench.by_air.items())
        lines += ["[[lora]]", f"port = {json.dumps(str(folder.port(MODEM)))}"]
        lines += [f"spreading_factor = {bench.air.spreading_factor}"]
        lines += [f"network = {bench.air.network}", f"boards = {{{numbers}}}", ""]
    for device in [name for name in devices if name not in bench.by_air]:
        lines += ["[[serial]]", f"port = {json.dumps(str(folder.port(device)))}", ""]
    if port:
        lines += ["[[listener]]", f'bind = "127.0.0.1:{port}"', "anonymous = true", ""]
    if web:
        lines += ["[web]", f'bind = "{web}"', ""]
    if other:
        lines += ["[[bridge]]", 'name = "there"', f'server = "mqtt://127.0.0.1:{other}"']
        lines += [f'up = ["sensors/#", "{STATES}/{HERE}/#"]', f'down = ["{STATES}/{THERE}/#"]', ""]
    folder.config.write_text("\n".join(lines))


def make_folders(folder: Folder) -> None:
    for made in (folder.data, folder.landing, folder.table.parent, folder.ports):
        made.mkdir(parents=True, exist_ok=True)
