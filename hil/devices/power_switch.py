"""A real power switch, through labgrid (https://labgrid.readthedocs.io), imported only when a bench
names one. In: a labgrid environment file and the name of a target in it. labgrid finds the target's
driver for the PowerProtocol, such as a network power strip, a USB hub or an external command. Out:
the target's power, on and off. The extra `hil-labgrid` installs labgrid.
"""

from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import Any

from gateway.commands.extras import how_to_get
from gateway.errors import OncewayError


class Switch:
    """A power switch that labgrid drives. Raises OncewayError if labgrid is not installed, the
    environment cannot be read, the target has no power switch, or the switch fails.
    """

    def __init__(self, environment: Path, target: str) -> None:
        self._where = f"{environment}, target {target}"
        self._turning = Lock()
        try:
            labgrid = import_module("labgrid")
        except ImportError as error:
            hint = how_to_get("hil-labgrid")
            raise OncewayError(
                f"power switches need labgrid ({error})", str(environment), hint
            ) from error
        try:
            found = labgrid.Environment(str(environment)).get_target(target)
            self._power: Any = found.get_driver("PowerProtocol") if found else None
        except Exception as error:  # drivers raise any error
            raise self._failed("labgrid finds no power switch", error) from error
        if self._power is None:
            raise OncewayError(
                "the labgrid environment has no such target, or an empty one", self._where
            )

    def turn(self, on: bool) -> None:
        """Switch the power, and wait until it is switched. Only one thread switches at a time.
        Raises OncewayError.
        """
        try:
            with self._turning:
                (self._power.on if on else self._power.off)()
        except Exception as error:  # as above
            raise self._failed(
                f"the power cannot be switched {'on' if on else 'off'}", error
            ) from error

    def _failed(self, text: str, error: Exception) -> OncewayError:
        reason = " ".join(f"{error}".split()) or type(error).__name__
        return OncewayError(f"{text} ({reason})", self._where)
