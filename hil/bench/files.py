"""Benches as files. In: the path of a bench, or the name of a bench of the project (hil/benches).
Out: a checked `Bench`. Errors name key, value and reason, also for the files that the bench names.
"""

import tomllib
from collections.abc import Callable
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from shutil import which
from typing import TypeVar

from pydantic import ValidationError

from gateway.config import Config
from gateway.config.mistakes import explain as explain_setting
from gateway.errors import OncewayError
from hil.bench.bench import Bench
from hil.bench.mistakes import explain, line_of, meant, text_of
from hil.bench.plan import merged
from hil.boards.images import read_firmware
from hil.faults.line import LineTrace
from hil.traces import recording

T = TypeVar("T")
BESIDE = frozenset(
    {
        *("demo-lora", "demo-site", "every-step-qos1", "glue", "nemesis", "radio-crowd"),
        *("radio-mixed", "radio-outages", "recorded-losses", "recorded-outages", "site-crowd"),
    }
)
"""Names of benches that are not in the core (`onceway hil run --core`). Each of their claims is
also checked by a bench of the core.
"""


def own_benches() -> dict[str, Traversable]:
    """Return the project's own benches, by name."""
    return {
        item.name.removesuffix(".toml"): item
        for item in files("hil").joinpath("benches").iterdir()
        if item.name.endswith(".toml")
    }


def load(name: str, **changes: object) -> Bench:
    """Return a bench of the project by its name, or any bench by its path. changes: new values of
    top-level keys. Raises OncewayError.
    """
    source = own_benches().get(name) or Path(name)
    try:
        text = source.read_text(encoding="utf-8")
        data = {**tomllib.loads(text), **changes}
        bench = Bench.model_validate(data)
    except OSError as error:
        known = ", ".join(sorted(own_benches()))
        raise OncewayError(
            f"cannot read the bench ({error.strerror}){meant(name, own_benches())}",
            name,
            f"Benches that come with the project: {known}",
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise OncewayError(f"the bench is not valid TOML ({error})", name) from error
    except ValidationError as error:
        found = explain(error, Bench, text, changes)
        found += refused(data.get("config"), _length(data.get("gateway")), text)
        raise OncewayError(
            text_of([*found, *map(str, bad_firmware(data.get("firmware")))]),
            name,
            "`onceway hil faults` lists the kinds of faults and their keys"
            if any(one["loc"][:1] == ("fault",) for one in error.errors())
            else None,
        ) from error
    settings, bad = refused(bench.config, len(bench.gateway), text), bad_files(bench)
    if settings or len(bad) > 1:
        raise OncewayError(text_of([*settings, *map(str, bad)]), name)
    if bad:
        raise bad[0]
    return bench


def replaying(bench: Bench, trace: str) -> Bench:
    """Return the bench with `trace` in place of each recorded link. Raises OncewayError."""
    faults = [
        kind.model_copy(update={"trace": trace}) if isinstance(kind, LineTrace) else kind
        for kind in bench.fault
    ]
    air = bench.air
    if air and air.trace:
        air = air.model_copy(update={"trace": trace})
    changed = bench.model_copy(update={"fault": faults, "air": air})
    if bad := bad_files(changed):
        raise bad[0]
    return changed


def bad_files(bench: Bench) -> list[OncewayError]:
    """Return an error for each recorded link that cannot be read, each firmware that fits no board,
    and each missing program of a client.
    """
    traces = [kind.trace for kind in bench.fault if isinstance(kind, LineTrace)]
    traces += [bench.air.trace] if bench.air and bench.air.trace else []
    found = [_refused(recording.load, trace) for trace in dict.fromkeys(traces)]
    programs = {table.command[0] for table in bench.client if table.command}
    found += [
        OncewayError("there is no such program, or it cannot be executed", program)
        for program in sorted(programs)
        if which(program) is None
    ]
    sketches = [bad for file in bench.sketches.values() for bad in bad_firmware(file)]
    return [*filter(None, found), *bad_firmware(bench.firmware), *sketches]


def bad_firmware(named: object) -> list[OncewayError]:
    """Return the errors of the firmware file `named`, a value from a bench; [] without a name."""
    if not isinstance(named, str) or not named:
        return []
    if not (path := Path(named)).is_file():
        hint = f"A path that does not begin with / is looked up in {Path.cwd()}"
        return [OncewayError("there is no such firmware file", named, hint)]
    return [*filter(None, [_refused(read_firmware, path)])]


def refuse_settings(bench: Bench) -> None:
    """Raise OncewayError if the gateway would refuse settings of the bench, for example because
    another version recorded the bench.
    """
    if wrong := refused(bench.config, len(bench.gateway), ""):
        raise OncewayError(text_of(wrong), None, "Look at [config] of the bench")


def _length(table: object) -> int:
    return len(table) if isinstance(table, list) else 0


def _refused(read: Callable[[T], object], file: T) -> OncewayError | None:
    try:
        read(file)
    except OncewayError as error:
        return error
    return None


def refused(config: object, gateways: int, text: str) -> list[str]:
    """Return a sentence for each setting that the gateway would refuse. It names the setting's line
    in the text of the bench. config: value of the key `config`. If it is not a table of tables, the
    result is []: the bench itself refuses such a value. gateways: number of gateways.
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
            + f"[config]: {explain_setting(one)}"
            for one in error.errors()
        ]
    return []
