"""What `onceway uplink status` says. In: the gateway's database. Out: figures, as JSON or as text."""

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from gateway.uplink.spool import Spool


@dataclass(frozen=True, slots=True)
class Status:
    """rows, bytes: in the spool, of topics and payloads. waiting: rows in no batch yet. landed_at: µs UTC of the newest landed batch."""

    gateway: str
    epoch: str
    rows: int
    bytes: int
    waiting: int
    cut: int
    landed: int
    landed_at: int | None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def as_text(self) -> str:
        when = f" at {datetime.fromtimestamp(self.landed_at / 1e6, UTC):%Y-%m-%d %H:%M:%S} UTC" if self.landed_at else ""
        return "\n".join(
            (
                f"gateway     {self.gateway}, epoch {self.epoch}",
                f"spool       {self.rows:,} readings, {self.bytes:,} bytes, {self.waiting:,} of them in no batch yet",
                f"batches     {self.cut:,} cut, {self.landed:,} landed{when}",
            )
        )


def look(spool: Spool) -> Status:
    origin = spool.origin()
    rows, size = spool.volume()
    number, last = spool.last_cut()
    landed, when = spool.last_landed()
    return Status(origin.gateway, origin.epoch, rows, size, spool.count_after(last), number, landed, when)
