"""One radio: the frames that a board hears, and those that the law, the disk or the modem delays or
prevents.
"""

from gateway.links.lora.airtime import Modulation
from gateway.links.lora.frames import Hello, Welcome
from gateway.links.lora.kiss import ANSWER_WAIT, KissModem
from gateway.links.lora.ledger_file import Ledgers
from gateway.links.lora.station import Event, RadioFailed, RadioReady, Signal, Station
from gateway.links.lora.turns import WINDOW, TurnLink
from gateway.system.regions import EU868
from tests.links.lora.test_duty import HOUR, TINY, worst_hour
from tests.links.lora.tnc import Tnc

NETWORK, DEVICE = 7, 3
KEYS = {device: bytes(range(device, device + 16)) for device in range(1, 101)}


class Site:
    """A station with its modem. disk: whether the airtime record is written at once; otherwise, it
    is not written.
    """

    def __init__(self, band: str = "P") -> None:
        self.tnc = Tnc()
        self.ledgers = Ledgers(EU868, "machine", None, 0.0)
        modem = KissModem(EU868.frequency, Modulation(9), 14)
        self.station = Station(
            modem, TurnLink(NETWORK, KEYS.get), self.ledgers, band, Modulation(9).airtime
        )
        self.disk = True
        self.station.open(0.0)
        assert self.run(0.0) == [RadioReady("KISS modem, firmware 2")]

    def run(self, now: float) -> list[Event]:
        """Let the station and its modem do all work that is due at `now`. Return the station's
        events.
        """
        events = self.station.tick(now)
        while True:
            if self.disk and self.station.record(now) is not None:
                self.station.recorded()
                events += self.station.tick(now)
            said, self.tnc.out = self.tnc.out, b""
            asked = self.station.take()
            if not said and not asked:
                return events
            self.tnc.feed(asked)
            events += self.station.receive(said, now)

    def greet(self, now: float, device: int = DEVICE, boot: int = 1) -> Hello:
        hello = Hello(NETWORK, device, boot, 0, 0, 1, 96).signed(KEYS[device], boot)
        self.tnc.hear(hello.to_bytes(), 20, -90)
        self.run(now)
        return hello


def test_a_board_that_greets_hears_its_welcome() -> None:
    site = Site()
    hello = site.greet(1.0)
    assert site.tnc.pending is not None
    assert Welcome.from_frame(site.tnc.pending).proves(KEYS[DEVICE], hello)
    site.tnc.finish()
    site.run(1.4)
    assert site.station.counts == {"sent": 1}
    assert site.station.signals == {DEVICE: Signal(1.0, -90.0, 5.0)}
    assert site.station.heard(DEVICE, 1.4) == Modulation(9).airtime(len(hello.to_bytes()))
    spent = Modulation(9, preamble=16).airtime(Welcome.SIZE)
    assert site.ledgers.ledger("P").used(2.0) == spent


def test_frames_for_two_boards_leave_one_after_the_other() -> None:
    site = Site()
    site.greet(1.0, 3)
    first = site.tnc.pending
    site.greet(1.1, 4)
    assert site.tnc.pending == first
    site.tnc.finish()
    site.run(1.3)
    assert site.tnc.pending is not None
    assert site.tnc.pending[1] == 4


def test_a_board_that_listens_no_more_is_not_answered() -> None:
    site = Site()
    site.greet(1.0, 3)
    site.greet(1.1, 4)
    site.tnc.finish()
    site.run(1.1 + WINDOW + 0.1)
    assert site.tnc.pending is None
    assert site.station.counts == {"sent": 1, "late": 1}


def test_frame_is_sent_after_its_record_is_on_disk() -> None:
    site = Site()
    site.ledgers.spend("P", site.ledgers.granted("P"), 0.0)
    site.disk = False
    site.greet(1.0)
    assert site.tnc.pending is None
    site.disk = True
    site.run(1.2)
    assert site.tnc.pending is not None


def test_frame_beyond_the_duty_cycle_is_counted_and_sent_later() -> None:
    """The band allows one percent of an hour, which is 36 s. The boards send HELLO so often that
    the answers would take longer.
    """
    site, now, sent = Site("M"), 1.0, []
    for number in range(800):
        site.greet(now, 1 + number % 100, 1 + number // 100)
        if site.tnc.pending is not None:
            end = now + Modulation(9, preamble=16).airtime(len(site.tnc.pending))
            sent.append((now, end))
            site.tnc.finish()
            site.run(end)
        now += 2.0
    assert site.station.counts["law"] > 100
    assert 0.95 * 36 < worst_hour(sent) <= 36 + TINY
    before = len(site.tnc.sent)
    site.greet(now + HOUR, 5, 99)
    assert site.tnc.pending is not None
    assert len(site.tnc.sent) == before


def test_hanging_modem_is_reported_and_works_after_reopening() -> None:
    site = Site()
    site.greet(1.0)
    late = site.station.deadline
    assert late is not None
    assert late < 1.0 + WINDOW + ANSWER_WAIT
    (failed,) = site.station.tick(late)
    assert isinstance(failed, RadioFailed)
    site.tnc.boot()
    site.station.open(5.0)
    assert site.run(5.0) == [RadioReady("KISS modem, firmware 2")]
    site.greet(6.0, 4)
    assert site.tnc.pending is not None
