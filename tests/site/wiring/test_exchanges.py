"""An exchange at QoS 2 continues in a session that has moved to another gateway of its site.

Other brokers fail in this case, even within one broker: see the public issues rmqtt#456,
vernemq#2552 and bifromq#281.
"""

import pytest

from gateway.mqtt.packets import (
    Connack,
    Packet,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
)
from gateway.mqtt.properties import PropertyId as P
from gateway.mqtt.reason import ReasonCode
from tests.broker.harness import Client
from tests.site.wiring.test_local_member import Sites

EXPIRY_S = 2


@pytest.fixture
def sites() -> Sites:
    return Sites("a", "b")


def goes_on_at_b(sites: Sites, client: Client) -> tuple[Client, list[Packet]]:
    """Let the client reconnect at b after its message has expired. Return the client, and the
    packets after its CONNACK.
    """
    client.break_line()
    sites.pass_time(EXPIRY_S + 1)
    client = sites.connect("b", "c")
    assert client.take(Connack).session_present
    return client, client.take_all()


def subscriber(sites: Sites) -> tuple[Client, Publish]:
    """Return a client at a, and the message that a has sent to it."""
    client = sites.connect("a")
    client.take(Connack)
    sites.say(client, Subscribe(1, [Subscription("t", 2)]))
    client.take(Suback)
    publisher = sites.connect("a", "publisher")
    sites.say(publisher, Publish("t", b"m", 2, 5, properties={P.MESSAGE_EXPIRY_INTERVAL: EXPIRY_S}))
    return client, client.take(Publish)


@pytest.mark.mqtt("MQTT-4.3.3-7", "MQTT-4.3.3-13", "MQTT-4.3.3-6", "MQTT-4.4.0-1")
def test_behind_pubrec_a_message_does_not_expire_and_only_pubrel_comes_again(sites: Sites) -> None:
    client, message = subscriber(sites)
    sites.say(client, Pubrec(message.packet_id))
    client.take(Pubrel)
    client, came = goes_on_at_b(sites, client)
    assert came == [Pubrel(message.packet_id)], "the message itself has been delivered"
    sites.say(client, Pubcomp(message.packet_id))
    _, came = goes_on_at_b(sites, client)
    assert came == []


@pytest.mark.mqtt("MQTT-4.3.3-7", "MQTT-4.4.0-1")
def test_a_message_that_was_sent_comes_again_as_the_same_one(sites: Sites) -> None:
    client, message = subscriber(sites)
    client, (again,) = goes_on_at_b(sites, client)
    assert isinstance(again, Publish)
    assert (again.packet_id, again.dup, again.payload) == (message.packet_id, True, b"m")
    sites.say(client, Pubrec(again.packet_id))
    assert client.take(Pubrel) == Pubrel(again.packet_id)


@pytest.mark.mqtt("MQTT-4.3.3-10", "MQTT-4.3.3-11", "MQTT-4.3.3-13")
def test_a_repeated_publish_that_has_expired_is_still_known_and_taken_once(sites: Sites) -> None:
    expiry = {P.MESSAGE_EXPIRY_INTERVAL: EXPIRY_S}
    client = sites.connect("a")
    sites.say(client, Publish("spool/x", b"m", 2, 9, properties=expiry))
    client, _ = goes_on_at_b(sites, client)
    sites.say(client, Publish("spool/x", b"m", 2, 9, dup=True, properties=expiry))
    assert client.take(Pubrec) == Pubrec(9)
    sites.say(client, Pubrel(9))
    assert client.take(Pubcomp) == Pubcomp(9)
    rows = [len(sites[name].rows("SELECT * FROM spool")) for name in sites.names]
    assert rows == [1, 0]


@pytest.mark.mqtt("MQTT-4.3.3-11", "MQTT-4.3.3-12")
def test_repeated_pubrel_is_answered_as_unknown(sites: Sites) -> None:
    client = sites.connect("a")
    sites.say(client, Publish("spool/x", b"1", 2, 9), Pubrel(9))
    client, _ = goes_on_at_b(sites, client)  # as if its PUBCOMP had been lost
    sites.say(client, Pubrel(9))
    assert client.take(Pubcomp) == Pubcomp(9, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)
    sites.say(client, Publish("spool/x", b"2", 2, 9))
    assert client.take(Pubrec) == Pubrec(9)
    rows = [len(sites[name].rows("SELECT * FROM spool")) for name in sites.names]
    assert rows == [1, 1], "the same identifier means another message now"
    sites.say(client, Pubrel(9))
    assert client.take(Pubcomp) == Pubcomp(9)
