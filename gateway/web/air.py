"""The radios, for the page. In: the radios of the configuration. Out: for each, its settings, its
airtime against the legal limit, counters of frames, and how well each board is received.
"""

from typing import Any

from gateway.links.lora.status import BoardSignal, RadioStatus
from gateway.web.source import Source


def air(source: Source) -> list[dict[str, Any]]:
    """Return one row for each section `[[lora]]`. `heard` of a board: seconds since its last frame,
    null if none was heard since the start. It is an age, because the browser's clock may be wrong.
    """
    return [_row(radio) for radio in source.radios()]


def heard(source: Source, device: str) -> dict[str, Any] | None:
    """Return the board's row at the radio that heard it last, or None if no radio has heard it."""
    found = [(board, radio) for radio in source.radios() for board in radio.boards]
    mine = [(board, radio) for board, radio in found if board.name == device]
    if not mine:
        return None
    board, radio = min(mine, key=lambda pair: pair[0].age)
    return _board(device, radio, board) | {"port": radio.path, "limit": radio.limit}


def _row(radio: RadioStatus) -> dict[str, Any]:
    signals = {board.name: board for board in radio.boards}
    names = dict.fromkeys([*radio.numbers.values(), *signals])
    return {
        "port": radio.path,
        "open": radio.is_open,
        "told": radio.told,
        "problem": radio.problem,
        "rule": radio.rule,
        "region": radio.region,
        "frequency": radio.frequency,
        "factor": radio.factor,
        "network": radio.network,
        "used": round(radio.used, 3),
        "limit": radio.limit,
        "counts": radio.counts,
        "boards": [_board(name, radio, signals.get(name)) for name in names],
    }


def _board(name: str, radio: RadioStatus, signal: BoardSignal | None) -> dict[str, Any]:
    return {
        "name": name,
        "connected": name in radio.connected,
        "heard": None if signal is None else round(signal.age, 1),
        "rssi": signal and signal.rssi,
        "snr": signal and signal.snr,
        "airtime": 0.0 if signal is None else round(signal.airtime, 3),
    }
