"""Counters of a reliable link, for metrics."""

from dataclasses import dataclass


@dataclass(slots=True)
class LinkStatistics:
    """Counters since the port was first opened. The goodput is the rate at which
    `payload_bytes_received` and `payload_bytes_acknowledged` grow.
    """

    bytes_received: int = 0
    bytes_sent: int = 0
    frames_received: int = 0
    """Frames that passed their CRC."""
    frames_sent: int = 0
    """Frames put on the wire, retransmissions included."""
    payload_bytes_received: int = 0
    """Bytes of MQTT packets that this side has received, each counted once."""
    payload_bytes_acknowledged: int = 0
    """Bytes of MQTT packets that the peer has acknowledged."""
    retransmissions: int = 0
    duplicates: int = 0
    """DATA frames that were not the next expected one: received before, or sent after a lost frame.
    """
    crc_errors: int = 0
    """Frames with a wrong CRC: damaged on the line, or sent in an earlier session."""
    malformed_frames: int = 0
    """Frames with impossible length, broken COBS, or a field outside its range."""
    sessions: int = 0
    reboots: int = 0
    """Handshakes with another boot number than the handshake before."""
    give_ups: int = 0
    round_trip: float | None = None
    """Smoothed round-trip time in seconds; None before the first sample."""
