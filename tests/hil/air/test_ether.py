"""The simulated ether: the radios that hear a frame, and the check of the legal duty cycle."""

from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.links.lora.airtime import Modulation
from hil.air.ether import Ether, Heard, Radio
from hil.air.law import Judge
from hil.air.loss import Recorded
from hil.air.physics import Channel, airtime
from hil.traces.trace import Frame, Trace

P = Channel(869_525_000, 125_000, 9)


def site(*places: tuple[float, float], channel: Channel = P) -> tuple[Ether, list[Radio]]:
    """Return an ether, and a listening radio at each place."""
    ether = Ether(Judge())
    radios = [ether.join(f"r{number}", place) for number, place in enumerate(places)]
    for radio in radios:
        ether.listen(radio, channel, 0.0)
    return ether, radios


@given(st.integers(7, 12), st.integers(1, 4), st.integers(6, 40), st.integers(1, 255))
def test_two_formulas_for_airtime_agree(
    factor: int, coding: int, preamble: int, length: int
) -> None:
    theirs = Modulation(factor, coding=coding, preamble=preamble).airtime(length)
    channel = Channel(868_100_000, 125_000, factor)
    assert airtime(channel, coding, preamble, length) == pytest.approx(theirs, abs=2e-6)


def test_signal_strength_follows_the_distance() -> None:
    ether, (sender, near, far) = site((0, 0), (100, 0), (1000, 0))
    frame = ether.send(sender, b"reading", P, 1.0)
    assert frame.end == pytest.approx(1.0 + Modulation(9).airtime(7))
    heard = ether.end(frame)
    assert [one.radio for one in heard] == [near, far]
    assert heard[0].rssi == pytest.approx(14 - 31.2 - 58)
    assert heard[1].rssi == pytest.approx(heard[0].rssi - 29)
    assert heard[1].snr == pytest.approx(heard[1].rssi + 117)


def test_a_slower_frame_reaches_farther() -> None:
    for factor, is_heard in ((7, False), (12, True)):
        channel = Channel(869_525_000, 125_000, factor)
        ether, (sender, _) = site((0, 0), (6000, 0), channel=channel)
        assert bool(ether.end(ether.send(sender, b"x", channel, 1.0))) is is_heard


def test_a_radio_that_sends_or_sleeps_or_listens_elsewhere_or_too_late_hears_nothing() -> None:
    ether, (sender, talks, sleeps, elsewhere, late) = site(*[(float(n), 0.0) for n in range(5)])
    ether.listen(sleeps, None, 0.5)
    ether.listen(elsewhere, Channel(869_525_000, 125_000, 8), 0.5)
    ether.listen(late, None, 0.5)
    own = ether.send(talks, b"own", Channel(868_100_000, 125_000, 7), 1.0)
    frame = ether.send(sender, bytes(40), P, 1.0)
    ether.end(own)
    ether.listen(talks, P, own.end)
    ether.listen(late, P, 1.0 + 4 * P.symbol)
    assert ether.end(frame) == []
    assert [radio.counts["deaf"] for radio in (talks, sleeps, elsewhere, late)] == [1, 2, 2, 2]


def test_the_stronger_of_two_is_heard_if_it_is_six_decibels_above() -> None:
    for distance, heard in ((100.0, []), (200.0, [b"near"])):
        ether, (near, far, gateway) = site((100, 0), (-distance, 0), (0, 0))
        first = ether.send(near, b"near", P, 1.0)
        second = ether.send(far, b"far", P, 1.05)
        found: list[Heard] = ether.end(first) + ether.end(second)
        assert [one.data for one in found if one.radio is gateway] == heard


def test_frames_one_after_the_other_do_not_collide() -> None:
    ether, (one, other, gateway) = site((100, 0), (-100, 0), (0, 0))
    first = ether.send(one, b"first", P, 1.0)
    assert gateway in [heard.radio for heard in ether.end(first)]
    second = ether.send(other, b"second", P, first.end)
    assert gateway in [heard.radio for heard in ether.end(second)]


def test_a_link_loses_what_its_recording_lost() -> None:
    trace = Trace("t", (Frame(0, 0), Frame(3, 3, lost=2)))
    ether = Ether(Judge(), Recorded(trace, 1))
    sender, receiver = ether.join("a", (0, 0)), ether.join("b", (10, 0))
    ether.listen(receiver, P, 0.0)
    fates, now = "", 1.0
    for _ in range(12):
        frame = ether.send(sender, b"x", P, now)
        fates += "+" if ether.end(frame) else "-"
        now = frame.end + 1
    assert fates in ("+--+" * 3, "++--" * 3)
    assert receiver.counts["lost"] == 6


def test_paced_outage_keeps_its_length_despite_retries() -> None:
    trace = Trace("t", (Frame(0, 0), Frame(10, 1), Frame(40, 3, lost=1), Frame(50, 4)))
    loses = Recorded(trace, 1, pace=2)
    fates = [loses("a", "b", quarter / 4) for quarter in range(4 * 50)]
    assert fates[:100] == fates[100:], "50 s of it go by in 25"
    assert fates[:100].count(True) == pytest.approx(7.5 * 4, abs=1), "from 25 s on to 40 s"
    assert [loses("a", "b", 3.0) for _ in range(9)] == [fates[12]] * 9


def test_long_outage_is_shortened_and_each_link_reports_its_losses() -> None:
    before, behind = (Frame(t, t) for t in range(10)), (Frame(t, t) for t in range(40, 400))
    trace = Trace("t", (*before, Frame(39, 39, lost=29), *behind))
    loses = Recorded(trace, 1, pace=1, longest_outage=5)
    fates = [loses("a", "b", float(second)) for second in range(1000)]
    bursts = [len(list(run)) for lost, run in groupby(fates) if lost]
    assert set(bursts) <= {4, 5}
    (told,) = loses.summaries()
    assert (told["from"], told["to"], told["trace"], told["of"]) == ("a", "b", "t", 399)
    assert (told["frames"], told["lost"]) == (1000, sum(fates))
    assert (told["longest_outage"], told["shortened"]) == (5, 1)
    assert told["run_s"] == 999
    assert told["run_s"] - told["up_s"] == pytest.approx(sum(fates), rel=0.2)


def test_the_air_judges_the_law_in_each_sliding_hour() -> None:
    """Band M allows 36 s in any 3,600 s. So frames on both sides of a full hour count together."""
    judge = Judge()
    for begin in (3500.0, 3700.0):
        judge.sent("r", 868_100_000, 125_000, 14, begin, begin + 18.0)
    assert judge.breaches == []
    assert judge.worst[("r", "M")] == pytest.approx(36.0)
    judge.sent("r", 868_100_000, 125_000, 14, 7000.0, 7000.1)
    (breach,) = judge.breaches
    assert breach.startswith("r: sent 36.100 s in the 3600 s up to")
    judge.sent("r", 868_100_000, 125_000, 14, 7318.0, 7335.0)
    assert len(judge.breaches) == 1


@pytest.mark.parametrize(
    ("boards", "silent", "breaches"), [("", 18.0, 0), ("", 16.0, 1), ("lora-", 16.0, 0)]
)
def test_a_board_is_silent_after_each_frame(boards: str, silent: float, breaches: int) -> None:
    """Band P allows 10 %: nine times as long as the frame, less a tolerance for a busy machine."""
    judge = Judge(boards=boards)
    for begin in (0.0, 2.0 + silent):
        judge.sent("gateway", 869_525_000, 125_000, 14, begin, begin + 2.0)
    assert len(judge.breaches) == breaches


def test_other_breaches_are_power_and_a_channel_outside() -> None:
    judge = Judge()
    judge.sent("r", 868_100_000, 125_000, 15, 0.0, 0.1)
    judge.sent("r", 869_300_000, 125_000, 14, 0.0, 0.1)
    assert len(judge.breaches) == 2


def test_no_radio_sends_two_frames_at_once() -> None:
    ether, (sender,) = site((0, 0))
    ether.send(sender, b"x", P, 1.0)
    with pytest.raises(ValueError, match="two frames at once"):
        ether.send(sender, b"y", P, 1.0)
    with pytest.raises(ValueError, match="listens while it sends"):
        ether.listen(sender, P, 1.0)


def test_injected_frames_take_no_time_and_reach_all_listeners() -> None:
    ether, (foreign, listens, sleeps, sends) = site((0, 0), (10, 0), (20, 0), (30, 0))
    ether.listen(sleeps, None, 1.0)
    frame = ether.send(sends, b"reading", P, 2.0)
    (heard,) = ether.inject(foreign, b"forged", 2.1)
    assert (heard.radio, heard.data) == (listens, b"forged")
    assert listens.counts["foreign"] == 1
    assert listens in [one.radio for one in ether.end(frame)], "it met nothing"
    assert not ether.judge.breaches
