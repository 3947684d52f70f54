"""Admission of devices that send a HELLO, and the gateway's answers. One `Greeter` serves all ports
of a gateway, or each port has its own.

In: a HELLO. Out: an `Answer`: the WELCOME, and the check of the frames of the offered session; or
the reason why the device is refused.
"""

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import count

from gateway.links.frames import MAX_IN_FLIGHT, MTU, Check
from gateway.links.handshake import KEYED, Hello, KeyedWelcome, Welcome
from gateway.links.keys import NO_KEY, NONCE_SIZE, draw_nonce

_U16 = 0xFFFF


class Refusal(Enum):
    """Reasons why a device is refused."""

    STRANGER = "it is not admitted"
    NO_PROOF = "it greets without a key"
    WRONG_KEY = "it greets with a key other than the one that is known here"
    UNKNOWN_KEY = "its key is not known here"


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one HELLO. check: the check of the frames in the offered session; None if the
    device is refused. key: the key with which the WELCOME is signed; None in version 1 and in a
    refusal. proved: whether the device has proved that it has its key.
    """

    hello: Hello
    welcome: Welcome | KeyedWelcome
    check: Check | None
    key: bytes | None = field(default=None, repr=False)
    proved: bool = False
    refusal: Refusal | None = None

    def to_bytes(self, utc: int) -> bytes:
        """Return the WELCOME as it goes on the wire. utc: seconds since 1970, 0 if unknown."""
        welcome = replace(self.welcome, utc=utc)
        if self.key is not None and isinstance(welcome, KeyedWelcome):
            welcome = welcome.signed(self.key, self.hello)
        return welcome.to_bytes()


def draw_incarnation() -> int:
    """Return a random incarnation: 32 bits, not 0."""
    return secrets.randbelow(0xFFFF_FFFF) + 1


class Greeter:
    """The gateway's answers to HELLO.

    All greeters of one gateway process must share `handshakes`, the counter of handshakes: two
    boards without keys whose cables are swapped then never get the same session seed.

    gateway_boot: number of this gateway's starts, from its database. utc: returns seconds since
    1970, 0 while unknown. admit: returns why a device with this name may not connect, or None; its
    second argument is whether the device has proved its key. key: returns the key of a device, or
    None for an unknown device. again: rereads the data of `admit` and `key` before a device is
    refused, and returns whether the data have changed. incarnation: returns a number for a device
    that has no incarnation.
    """

    def __init__(
        self,
        gateway_boot: int,
        *,
        utc: Callable[[], float] = lambda: 0,
        admit: Callable[[str, bool], Refusal | None] = lambda name, proved: None,
        key: Callable[[str], bytes | None] = lambda name: None,
        again: Callable[[], bool] = lambda: False,
        incarnation: Callable[[], int] = draw_incarnation,
        handshakes: Iterator[int] | None = None,
    ) -> None:
        self.gateway_boot = gateway_boot & _U16
        self.utc = utc
        self._admit = admit
        self._key = key
        self._again = again
        self._incarnation = incarnation
        self._handshakes = handshakes or count(1)

    def answer(self, hello: Hello) -> Answer:
        """Return the answer to a HELLO that was not answered yet: a WELCOME, or a refusal if the
        device is not admitted.
        """
        key, refusal = self._judge(hello)
        if refusal is not None and self._again():
            key, refusal = self._judge(hello)
        proved = key not in (None, NO_KEY)
        if refusal is not None:
            return Answer(hello, self._welcome(hello, 0, refused=True), None, refusal=refusal)
        welcome = self._welcome(hello, hello.incarnation or self._incarnation())
        if key is not None and isinstance(welcome, KeyedWelcome):
            return Answer(hello, welcome, welcome.check(key, hello), key, proved)
        assert isinstance(welcome, Welcome)  # noqa: S101 - for the type checker
        return Answer(hello, welcome, welcome.check)

    def _judge(self, hello: Hello) -> tuple[bytes | None, Refusal | None]:
        """Return two values: the key with which the HELLO is signed, or None; and the reason to
        refuse its sender, or None.
        """
        key, refusal = self._authenticate(hello)
        return key, refusal or self._admit(hello.name, key not in (None, NO_KEY))

    def _authenticate(self, hello: Hello) -> tuple[bytes | None, Refusal | None]:
        """Return two values. If a known key fits: the key with which the HELLO is signed, and None.
        If no known key fits: None, and the reason to refuse the device. In version 1: None and
        None.
        """
        if hello.version != KEYED:
            return None, None
        known = self._key(hello.name)
        for key in (known, NO_KEY):
            if key is not None and hello.proves(key):
                return key, None
        return None, Refusal.UNKNOWN_KEY if known is None else Refusal.WRONG_KEY

    def _welcome(
        self, hello: Hello, incarnation: int, *, refused: bool = False
    ) -> Welcome | KeyedWelcome:
        if hello.version == KEYED:
            nonce = bytes(NONCE_SIZE) if refused else draw_nonce()
            return KeyedWelcome(
                hello.boot, hello.attempt, nonce, incarnation, MTU, MAX_IN_FLIGHT, 0, refused
            )
        return Welcome(
            hello.boot,
            hello.attempt,
            self.gateway_boot,
            next(self._handshakes) & _U16,
            incarnation,
            MTU,
            MAX_IN_FLIGHT,
            0,
            refused,
        )
