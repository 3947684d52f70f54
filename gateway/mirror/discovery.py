"""Device-based MQTT discovery of Home Assistant.

In: names and the last readings of a board. Out: the message of `PREFIX/device/ID/config`, as in
Home Assistant's documentation of the MQTT integration ("Device discovery payload": device, origin,
components), with the long forms of all keys. SenML's units (RFC 8428, section 12.1) become Home
Assistant's units. A device class is set only if Home Assistant knows the unit.
"""

from typing import Any
from urllib.parse import quote

from gateway import __version__
from gateway.mirror.last import Series
from gateway.payload.faults import FAULT

Message = dict[str, Any]

UPDATE, INSTALL = "commands/+/update", "install"
"""Topic filter and payload of Home Assistant's request to update a board."""
LEAST_EXPIRY_S = 600
_GAPS = 3
"""If no reading comes for this many times the longest of the last gaps between readings, and for at
least LEAST_EXPIRY_S, the value counts as unknown.
"""
_STATE_OF = "{{ value_json.value }}"
_WELL = "{{ 'offline' if value_json.value else 'online' }}"
"""Template for the record NAME.fault: the value NAME counts as available while the fault is 0."""
_FLAG_OF = "{{ 'ON' if value_json.value else 'OFF' }}"

_UNITS = {
    "V": ("V", "voltage"),
    "A": ("A", "current"),
    "W": ("W", "power"),
    "J": ("J", "energy"),
    "kWh": ("kWh", "energy"),
    "Hz": ("Hz", "frequency"),
    "Cel": ("°C", "temperature"),
    "K": ("K", "temperature"),
    "%RH": ("%", "humidity"),
    "%EL": ("%", "battery"),
    "Pa": ("Pa", "pressure"),
    "hPa": ("hPa", "pressure"),
    "lx": ("lx", "illuminance"),
    "W/m2": ("W/m²", "irradiance"),
    "m": ("m", "distance"),
    "m/s": ("m/s", "speed"),
    "m3": ("m³", "volume"),
    "kg": ("kg", "weight"),
    "g": ("g", "weight"),
    "s": ("s", "duration"),
    "dBW": ("dBW", None),
    "%": ("%", None),
    "/": (None, None),
    "count": (None, None),
}

_TOTALS = ("energy", "volume")
"""Device classes of amounts, for which Home Assistant accepts no state class `measurement`."""
_TITLES = {
    "boot": "Starts",
    "cause": "Cause of the last start",
    "denied": "EEPROM life at the refused interval",
    "worn": "Failed EEPROM writes",
    "life": "EEPROM life",
    "aside": "Refused messages",
    "bad": "Damaged frames",
    "again": "Repeated frames",
}
"""Titles of the records of a board's status (`firmware/README.md`)."""


def identifier(*names: str) -> str:
    """Return a unique word for a list of names, made of letters, digits, dashes and underscores."""
    return "_".join(map(_word, ("onceway", *names)))


def _word(name: str) -> str:
    return "".join(
        letter if letter.isascii() and (letter.isalnum() or letter == "-") else f"_{ord(letter):x}_"
        for letter in name
    )


def of_gateway(gateway: str, topic: str, page: str | None = None) -> Message:
    """Return the message for the gateway itself. topic: first level of the mirror. page: URL of the
    gateway's web page, None without one.
    """
    mine = identifier(gateway)
    state = f"{topic}/$gateway"

    def component(key: str, name: str, **more: Any) -> Message:
        return {"unique_id": f"{mine}_{key}", "name": name, "state_topic": state} | more

    return {
        "device": {
            "identifiers": [mine],
            "name": gateway,
            "manufacturer": "Onceway",
            "model": "Gateway",
            "sw_version": __version__,
        }
        | ({} if page is None else {"configuration_url": page}),
        "origin": _origin(),
        "availability": [{"topic": f"{topic}/$state"}],
        "components": {
            "problem": component(
                "problem",
                "Problem",
                platform="binary_sensor",
                device_class="problem",
                entity_category="diagnostic",
                value_template="{{ 'ON' if value_json.problems else 'OFF' }}",
                json_attributes_topic=state,
            ),
            "waiting": component(
                "waiting",
                "Messages that wait for the uplink",
                platform="sensor",
                state_class="measurement",
                entity_category="diagnostic",
                value_template="{{ value_json.waiting }}",
            ),
        },
    }


def of_board(
    gateway: str,
    device: str,
    known: dict[str, Series],
    topic: str,
    *,
    model: str | None = None,
    firmware: str | None = None,
    expire_after_s: int | None = None,
    page: str | None = None,
) -> Message:
    """Return the message for a board. topic: first level of the mirror. firmware: SHA-256 of its
    HEX file, if known. expire_after_s: None derives it from the gaps between readings; 0 disables
    expiry. page: as in `of_gateway`.
    """
    mine = identifier(gateway, device)
    about: Message = {
        "identifiers": [mine],
        "name": device,
        "manufacturer": "Onceway",
        "model": model or "Sensor",
        "via_device": identifier(gateway),
    }
    if page is not None:
        about["configuration_url"] = page_of(page, device)
    components = {
        _word(name): _value(name, series, f"{topic}/{device}/{name}", expire_after_s)
        for name, series in known.items()
    } | _commands(device)
    availability = [{"topic": f"{topic}/$state"}, {"topic": f"{topic}/{device}/$state"}]
    if firmware is not None:
        about["sw_version"] = firmware[:12]
        components["update_firmware"] = {
            "platform": "update",
            "name": "Firmware",
            "state_topic": f"{topic}/{device}/$firmware",
            "device_class": "firmware",
            "entity_category": "diagnostic",
            "command_topic": UPDATE.replace("+", device),
            "payload_install": INSTALL,
            "qos": 1,
            "retain": False,
            # A board is silent while it is written, and may stay so: the result must be shown.
            "availability": availability[:1],
        }
    for name in known:
        if name + FAULT in known:
            fault = {"topic": f"{topic}/{device}/{name}{FAULT}", "value_template": _WELL}
            components[_word(name)] |= {
                "availability": [*availability, fault],
                "availability_mode": "all",
            }
    for key, component in components.items():
        component["unique_id"] = f"{mine}_{key}"
    return {
        "device": about,
        "origin": _origin(),
        "availability": availability,
        "availability_mode": "all",
        "components": components,
    }


def page_of(page: str, device: str) -> str:
    """Return the URL of a board's page."""
    return f"{page.rstrip('/')}/#/board/{quote(device, safe='')}"


def shape(known: dict[str, Series]) -> object:
    """Return a value that changes whenever a change of these series changes the message of
    `of_board`.
    """
    return [
        (name, series.last.unit, type(series.last.value), series.last.status, expiry_s(series))
        for name, series in known.items()
    ]


def expiry_s(series: Series) -> int:
    """Return the seconds after which the last value expires: three times the longest recent gap,
    rounded up to ten minutes times a power of two. The rounded value seldom changes, so Home
    Assistant seldom needs a new message with it.
    """
    wanted, found = _GAPS * max(series.gaps, default=0.0), LEAST_EXPIRY_S
    while found < wanted:
        found *= 2
    return found


def _origin() -> Message:
    return {"name": "Onceway", "sw_version": __version__}


def _value(name: str, series: Series, topic: str, expire_after_s: int | None) -> Message:
    value, unit = series.last.value, series.last.unit
    found: Message = {
        "platform": "sensor",
        "name": _TITLES.get(name, name) if series.last.status else name,
        "state_topic": topic,
        "value_template": _STATE_OF,
        "json_attributes_topic": topic,
    }
    if isinstance(value, bool):
        found |= {"platform": "binary_sensor", "value_template": _FLAG_OF}
    elif not isinstance(value, str):
        shown, kind = _UNITS.get(unit or "/", (unit, None))
        found["state_class"] = "measurement"
        if shown is not None:
            found["unit_of_measurement"] = shown
        if kind is not None:
            found["device_class"] = kind
        if kind in _TOTALS:
            found["state_class"] = "total"
    if series.last.status:
        return found | {"entity_category": "diagnostic"}
    expires = expiry_s(series) if expire_after_s is None else expire_after_s
    return found | {"expire_after": expires} if expires else found


def _commands(device: str) -> dict[str, Message]:
    """Return the commands that a board accepts (`firmware/README.md`), at QoS 2 and never retained,
    so that each command runs once. No reading has the same key as a command: `_word` encodes
    underscores in names of readings.
    """
    common = {"command_topic": f"commands/{device}", "qos": 2, "retain": False}
    return {
        "command_identify": common
        | {
            "platform": "button",
            "name": "Identify",
            "payload_press": "identify",
            "device_class": "identify",
            "entity_category": "diagnostic",
        },
        "command_reboot": common
        | {
            "platform": "button",
            "name": "Restart",
            "payload_press": "reboot",
            "device_class": "restart",
            "entity_category": "config",
        },
        "command_interval": common
        | {
            "platform": "number",
            "name": "Interval",
            "command_template": "interval {{ value | int }} s",
            "min": 1,
            "max": 65_535,
            "step": 1,
            "mode": "box",
            "unit_of_measurement": "s",
            "device_class": "duration",
            "entity_category": "config",
        },
    }
