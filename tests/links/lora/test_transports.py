"""Log lines about sessions of radio boards."""

from unittest.mock import Mock

import pytest

from gateway.links.lora.frames import Hello
from gateway.links.lora.transports import Transports
from gateway.links.lora.turns import Session, SessionStarted


def test_a_name_too_long_for_a_frame_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    names = {1: "a" * 15, 2: "a" * 14}
    transports = Transports(Mock(), Mock(), names.get, listener="radio", path="radio", wake=Mock())
    for number in (1, 2, 1):
        hello = Hello(0, number, boot=1, attempt=1, incarnation=7, next_sequence=1, mtu=96)
        transports.handle(SessionStarted(Session(Mock(), 96), hello, 7))
    [warning] = [record for record in caplog.records if record.levelname == "WARNING"]
    assert f"{names[1]}: the name has 15 characters" in warning.getMessage()
    assert "device rename" in warning.getMessage()
