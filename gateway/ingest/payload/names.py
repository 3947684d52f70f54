"""Names of readings without a leading device: `roof-1:adc0` → `adc0`.

In: names (RFC 8428, section 4.5.1: globally unique, so most begin with the device) and the devices
that sent them. Out: names that are equal for devices that measure the same quantity.
"""

import pyarrow as pa
import pyarrow.compute as pc

SEPARATORS = (":", "/")
"""Separators between device and quantity."""

_BETWEEN = "\0"
"""Character that no name of a reading contains."""


def without_device(name: pa.Array, device: pa.Array) -> pa.Array:
    """Return names without their device. A name stays as it is if it does not begin with its device
    and a separator, or if nothing follows them.
    """
    pairs = pc.binary_join_element_wise(device, name, _BETWEEN).dictionary_encode()
    short = [_short(pair) for pair in pairs.dictionary.to_pylist()]
    return pa.array(short, pa.string()).take(pairs.indices)


def _short(pair: str) -> str:
    device, _, name = pair.rpartition(_BETWEEN)
    rest = name.removeprefix(device)
    begins = name.startswith(device) and rest.startswith(SEPARATORS)
    return rest[1:] if begins and len(rest) > 1 else name
