"""An attacker's radio: which frames it sends after it has received others."""

from hil.air.foreign import FOR_BOARDS, FORGED, REPLAYED, Foreign

TURN, ANSWER = bytes.fromhex("07010301020304050607"), bytes.fromhex("07014301020304")


def test_replaying_radio_sends_all_heard_frames() -> None:
    foreign = Foreign(replays=True, seed=1)
    turns = [TURN[:-1] + bytes([number]) for number in range(3)]
    for turn in turns:
        assert foreign.hear(turn, 1.0) == []
    again = foreign.hear(ANSWER, 2.0)
    assert again[0] == turns[-1]
    assert len(again) == 1 + REPLAYED
    assert set(again) == set(turns)
    assert foreign.hear(ANSWER, 2.5) == []
    assert foreign.hear(TURN, 2.6) == [ANSWER] * (1 + FOR_BOARDS)
    assert foreign.hear(ANSWER, 3.1)


def test_forging_radio_sends_no_heard_frame() -> None:
    foreign = Foreign(replays=False, seed=1)
    foreign.hear(TURN, 1.0)
    forged = foreign.hear(ANSWER, 1.1)
    assert len(forged) == FORGED
    assert not {TURN, ANSWER} & set(forged)
    assert len(set(forged)) > FORGED // 2
    assert len(foreign.hear(TURN, 1.2)) == FOR_BOARDS


def test_noise_is_nothing_to_go_by() -> None:
    assert Foreign(replays=True, seed=1).hear(b"\x07", 1.0) == []
