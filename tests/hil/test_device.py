"""What a device's own EEPROM log enters in the history."""

from binascii import crc_hqx
from pathlib import Path

from hil.bench import Bench
from hil.device import RELEASED_AT, RELEASED_MASK, SLOTS_AT, Device, make_erased
from hil.history import History, read
from hil.process import Children
from hil.site import Folder

INCARNATION = 0xC0FFEE
SOURCE = bytes(6) + b"\0\0"
DONE_AT = 15


def sealed(record: bytes) -> bytes:
    return record + crc_hqx(record, 0xFFFF).to_bytes(2)


def test_a_release_taken_back_is_a_publication_again(tmp_path: Path) -> None:
    history = History(tmp_path / "history.jsonl")
    device = Device("uno-1", Folder(tmp_path), Bench(title="t"), Children(tmp_path / "logs"), history)
    make_erased(device.board.eeprom_image)
    mark = 3 ^ RELEASED_MASK
    writes = list(enumerate(sealed(INCARNATION.to_bytes(4)), 0x008))
    writes += enumerate(sealed((3).to_bytes(4) + SOURCE), SLOTS_AT)
    writes += [(SLOTS_AT + RELEASED_AT, value) for value in (mark, mark ^ 0xFF, mark)]  # released, 0x92, released
    writes.append((SLOTS_AT + DONE_AT, 3 ^ 0xAA))
    with device.board.eeprom_log.open("w") as log:
        for cycle, (address, value) in enumerate(writes):
            log.write(f"{cycle} {address:03x} {value:02x} 0\n")
            log.flush()
            device.look()
    device.close_ledger()
    history.close()
    told = [(event.event, event.data["sequence"]) for event in read(history.path)]
    assert sorted(told) == [("again", 3), ("publication", 3)]
