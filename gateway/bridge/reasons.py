"""Reason codes of the other broker, and whether they blame the message.

In: the reason code of a PUBACK, a PUBREC or a DISCONNECT. Out: whether the message is at fault. If
a PUBACK or PUBREC blames the message, the message is refused for good [MQTT-4.4.0-2] and set aside.
If a DISCONNECT blames a message, the bridge suspects the messages in flight, as after a close
without a reason. After every other failure the message waits, and is sent again later.
"""

from gateway.mqtt.errors import quote
from gateway.mqtt.packets import Connack, Disconnect, Puback, Pubrec, Suback, Unsuback
from gateway.mqtt.properties import PropertyId
from gateway.mqtt.reason import ReasonCode

SAYS = " (it says: "
"""Text before the other broker's own words in a log line. The words after it may differ each time.
"""

_NOT_OFFERED = "the message uses a feature that the broker does not offer"

OF_THE_MESSAGE: dict[ReasonCode, str] = {
    ReasonCode.UNSPECIFIED_ERROR: "the broker refuses the message, and does not say why",
    ReasonCode.MALFORMED_PACKET: "the topic has a character or level that is forbidden",
    ReasonCode.PROTOCOL_ERROR: _NOT_OFFERED,
    ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR: "the message is valid, but the broker refuses it",
    ReasonCode.NOT_AUTHORIZED: "the bridge's user may not publish to the topic",
    ReasonCode.TOPIC_FILTER_INVALID: "the broker does not accept such a topic",
    ReasonCode.TOPIC_NAME_INVALID: "the broker does not accept such a topic",
    ReasonCode.PACKET_IDENTIFIER_IN_USE: "the broker already uses the message's packet identifier",
    ReasonCode.PACKET_IDENTIFIER_NOT_FOUND: "this reason fits no PUBLISH, so a retry cannot help",
    ReasonCode.TOPIC_ALIAS_INVALID: "the broker misreads the message: bridges send no topic alias",
    ReasonCode.PACKET_TOO_LARGE: "the message exceeds a limit of the broker, announced or not",
    ReasonCode.PAYLOAD_FORMAT_INVALID: "the payload does not match its Payload Format Indicator",
    ReasonCode.RETAIN_NOT_SUPPORTED: "the broker keeps no such retained message",
    ReasonCode.QOS_NOT_SUPPORTED: "the broker does not accept this QoS on the topic",
    ReasonCode.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED: "the topic begins like a shared subscription",
    ReasonCode.SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED: _NOT_OFFERED,
    ReasonCode.WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED: _NOT_OFFERED,
}
"""Failures that come back whenever the message is sent again, each with its meaning."""

OF_ANYTHING_ELSE: dict[ReasonCode, str] = {
    ReasonCode.UNSUPPORTED_PROTOCOL_VERSION: "the broker does not support the MQTT version",
    ReasonCode.CLIENT_IDENTIFIER_NOT_VALID: "the broker does not accept the client identifier",
    ReasonCode.BAD_USER_NAME_OR_PASSWORD: "the broker does not accept the user name or password",
    ReasonCode.SERVER_UNAVAILABLE: "the broker is not ready",
    ReasonCode.SERVER_BUSY: "the broker is busy",
    ReasonCode.BANNED: "the broker has banned the bridge",
    ReasonCode.SERVER_SHUTTING_DOWN: "the broker stops, and will start again",
    ReasonCode.BAD_AUTHENTICATION_METHOD: "the broker does not accept the authentication method",
    ReasonCode.KEEP_ALIVE_TIMEOUT: "the connection was silent",
    ReasonCode.SESSION_TAKEN_OVER: "another client uses the bridge's client identifier",
    ReasonCode.RECEIVE_MAXIMUM_EXCEEDED: "more messages were in flight than the broker accepts",
    ReasonCode.MESSAGE_RATE_TOO_HIGH: "the bridge sends messages too fast",
    ReasonCode.QUOTA_EXCEEDED: "a quota or limit of the broker is exceeded now",
    ReasonCode.ADMINISTRATIVE_ACTION: "an administrator ended the connection",
    ReasonCode.USE_ANOTHER_SERVER: "the broker asks the bridge to use another server",
    ReasonCode.SERVER_MOVED: "the broker asks the bridge to use another server",
    ReasonCode.CONNECTION_RATE_EXCEEDED: "the bridge connects too often",
    ReasonCode.MAXIMUM_CONNECT_TIME: "the connection has lasted too long",
}
"""Failures for which the message is not to blame, each with its meaning. They are temporary, or a
person can fix them.
"""


def blames_message(reason: ReasonCode) -> bool:
    """Whether a failure with this reason code is the fault of the message."""
    return reason in OF_THE_MESSAGE


def own_words(packet: Connack | Disconnect | Puback | Pubrec | Suback | Unsuback) -> str:
    """Return the Reason String and Server Reference of a packet in brackets, for the log. Return an
    empty string if the packet has neither.
    """
    properties = packet.properties or {}
    text = properties.get(PropertyId.REASON_STRING)
    found = [quote(text)] if text else []
    if server := properties.get(PropertyId.SERVER_REFERENCE):
        found.append(f"use the server {quote(server)}")
    return f"{SAYS}{', '.join(found)})" if found else ""
