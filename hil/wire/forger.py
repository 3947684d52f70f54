"""A program that pretends to be a board, on the board's own line. It has heard the board's HELLOs,
but does not have the board's key. In: the first and the last HELLO of the board. Out: well-formed
frames, which the gateway can recognise as forged only by the key: both HELLOs again; the last HELLO
with a new attempt number, with a code of another key, and without a code; and frames of sessions.
"""

from dataclasses import replace

from hil.formats.frames import Ack, Data, Hello, Seal, write_handshake, write_session
from hil.formats.keys import CODE_SIZE, cmac

_KEY = b"a forger has none"[:16]
_HELLO = b"\x80"
SAID = b"\x10\x10\x00\x04MQTT\x05\x00\x00\x3c\x00\x00\x03bad"


def forge(first: Hello, recorded: Hello) -> list[bytes]:
    """Return forged and replayed frames. first, recorded: the board's first and last HELLO."""
    later = replace(recorded, attempt=(recorded.attempt + 1) % 256)
    bare = write_handshake(replace(later, nonce=b"", code=b""))
    frames = [write_handshake(recorded), write_handshake(later), write_handshake(signed(later))]
    for seed in (0, 0xFFFF_FFFF, int.from_bytes(cmac(_KEY, recorded.nonce)[:4])):
        seal = Seal(seed, keyed=True)
        frames += [write_session(Ack(0), seal), write_session(Data(0, 0, SAID), seal)]
    frames += [bare, write_session(Data(0, 0, SAID), Seal(0x1234))]
    return [*frames, write_handshake(recorded), write_handshake(first)]


def signed(hello: Hello) -> Hello:
    """Return the HELLO with a code that is made with the forger's key."""
    return replace(hello, code=cmac(_KEY, _HELLO + hello.covered)[:CODE_SIZE])
