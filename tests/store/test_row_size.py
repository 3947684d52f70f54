"""Broker and uplink count the same number of bytes for a row of the spool. The broker counts the
same before and after a restart.
"""

from gateway.store.schema import ROW_SIZE
from tests.broker.harness import World


def test_the_broker_and_the_store_count_a_row_alike() -> None:
    world = World()
    world.accepted(answers=True).publish("spool/größe", bytes(33), 2)
    counted = world.broker.spool.size
    assert counted == 33 + len("spool/größe".encode()) + 64
    assert world.rows(f"SELECT sum({ROW_SIZE}) FROM spool") == [(counted,)]
    world.power_cut()
    assert world.broker.spool.size == counted
