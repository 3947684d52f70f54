"""Messages wait for each channel separately, also over restarts. Each lost message is reported."""

from pathlib import Path

import pytest

from gateway.notify.notices import MOST, Message
from gateway.notify.outbox import FILE, Outbox


def message(number: int) -> Message:
    return Message("begins", [f"problem {number}"], "site-1", float(number))


def waiting(box: Outbox, channel: str) -> list[str]:
    found = []
    while (first := box.first(channel)) is not None:
        found += first.problems
        box.drop_accepted(channel, first)
        box.write(box.text())
    return found


def test_message_waits_for_the_other_channel_after_a_restart(tmp_path: Path) -> None:
    box = Outbox(tmp_path, ["mail", "webhook"])
    box.put([message(1), message(2)])
    first = box.first("mail")
    assert first is not None
    box.drop_accepted("mail", first)
    box.write(box.text())
    again = Outbox(tmp_path, ["mail", "webhook"])
    assert waiting(again, "mail") == ["problem 2"]
    assert waiting(again, "webhook") == ["problem 1", "problem 2"]
    assert waiting(Outbox(tmp_path, ["mail", "webhook"]), "webhook") == []


def test_a_message_that_was_sent_and_not_noted_comes_again_with_its_number(tmp_path: Path) -> None:
    box = Outbox(tmp_path, ["mail"])
    box.put([message(1)])
    box.write(box.text())
    sent = box.first("mail")
    assert sent is not None
    again = Outbox(tmp_path, ["mail"]).first("mail")  # the gateway died before `taken`
    assert again is not None
    assert again.id == sent.id


def test_messages_of_one_mail_channel_wait_for_each_address(tmp_path: Path) -> None:
    box = Outbox(tmp_path, ["mail"])
    box.put([message(1)])
    box.write(box.text())
    again = Outbox(tmp_path, ["mail to a@x", "mail to b@x"])
    assert [again.count(name) for name in ("mail to a@x", "mail to b@x")] == [1, 1]


def test_a_message_that_makes_room_is_counted(tmp_path: Path) -> None:
    box = Outbox(tmp_path, ["mail"])
    box.put([message(number) for number in range(MOST)])
    assert box.lost == 0
    box.put([message(MOST)])
    assert (box.lost, box.count("mail")) == (1, MOST)


@pytest.mark.parametrize("text", ["[1", "[]", '{"mail": [1]}', '{"mail": [{"event": "x"}]}'])
def test_a_damaged_file_is_reported_and_begun_again(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / FILE).write_text(text)
    assert Outbox(tmp_path, ["mail"]).first("mail") is None
    assert "messages that waited are lost" in caplog.text


def test_channel_no_longer_configured_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    box = Outbox(tmp_path, ["mail"])
    box.put([message(1)])
    box.write(box.text())
    Outbox(tmp_path, ["webhook"])
    assert "1 message that waited for mail" in caplog.text


def test_a_file_that_cannot_be_written_is_reported_once_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    box = Outbox(tmp_path, ["mail"])
    (tmp_path / FILE).mkdir()
    assert [box.write("{}") for _ in range(3)] == [False] * 3
    assert len(caplog.messages) == 1
    (tmp_path / FILE).rmdir()
    assert box.write("{}")
