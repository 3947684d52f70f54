"""Hypothesis strategies for every packet that the standards allow, by version and sender."""

from hypothesis import strategies as st

from gateway.mqtt import properties as props
from gateway.mqtt import reason as codes
from gateway.mqtt.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Side,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Version,
    Will,
)
from gateway.mqtt.properties import Properties, PropertyId
from gateway.mqtt.reason import ReasonCode

P = PropertyId
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
blobs = st.binary(max_size=40)
packet_ids = st.integers(1, 0xFFFF)
versions = st.sampled_from(Version)
names = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0+#"), min_size=1, max_size=20
)
levels = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0+#/$"), max_size=6)
filters = st.lists(levels | st.just("+"), min_size=1, max_size=5).map("/".join).filter(
    bool
) | st.lists(levels, max_size=3).map(lambda parts: "/".join([*parts, "#"]))
shared_filters = st.tuples(levels.filter(bool), filters).map(
    lambda parts: f"$share/{parts[0]}/{parts[1]}"
)

_flags = st.integers(0, 1)
_u16 = st.integers(0, 0xFFFF)
_u32 = st.integers(0, 0xFFFF_FFFF)
_VALUES: dict[PropertyId, st.SearchStrategy[object]] = {
    **dict.fromkeys(
        [P.PAYLOAD_FORMAT_INDICATOR, P.REQUEST_PROBLEM_INFORMATION, P.REQUEST_RESPONSE_INFORMATION],
        _flags,
    ),
    **dict.fromkeys([P.MAXIMUM_QOS, P.RETAIN_AVAILABLE, P.WILDCARD_SUBSCRIPTION_AVAILABLE], _flags),
    **dict.fromkeys([P.SUBSCRIPTION_IDENTIFIER_AVAILABLE, P.SHARED_SUBSCRIPTION_AVAILABLE], _flags),
    **dict.fromkeys(
        [P.MESSAGE_EXPIRY_INTERVAL, P.SESSION_EXPIRY_INTERVAL, P.WILL_DELAY_INTERVAL], _u32
    ),
    **dict.fromkeys([P.SERVER_KEEP_ALIVE, P.TOPIC_ALIAS_MAXIMUM], _u16),
    **dict.fromkeys([P.RECEIVE_MAXIMUM, P.TOPIC_ALIAS], st.integers(1, 0xFFFF)),
    **dict.fromkeys(
        [
            P.CONTENT_TYPE,
            P.ASSIGNED_CLIENT_IDENTIFIER,
            P.AUTHENTICATION_METHOD,
            P.RESPONSE_INFORMATION,
        ],
        texts,
    ),
    **dict.fromkeys([P.SERVER_REFERENCE, P.REASON_STRING], texts),
    **dict.fromkeys([P.CORRELATION_DATA, P.AUTHENTICATION_DATA], blobs),
    P.RESPONSE_TOPIC: names,
    P.MAXIMUM_PACKET_SIZE: st.integers(1, 0xFFFF_FFFF),
    P.SUBSCRIPTION_IDENTIFIER: st.lists(st.integers(1, 268_435_455), min_size=1, max_size=3),
    P.USER_PROPERTY: st.lists(st.tuples(texts, texts), min_size=1, max_size=3),
}


def properties_for(
    allowed: props.Allowed, version: Version, one_identifier: bool = False
) -> st.SearchStrategy[Properties | None]:
    """Return any of the allowed properties, in any order. one_identifier: at most one subscription
    identifier, as in SUBSCRIBE.
    """
    if version < Version.V5:
        return st.none()

    def values(identifiers: list[PropertyId]) -> st.SearchStrategy[Properties | None]:
        chosen = {identifier: _VALUES[identifier] for identifier in identifiers}
        if one_identifier and P.SUBSCRIPTION_IDENTIFIER in chosen:
            chosen[P.SUBSCRIPTION_IDENTIFIER] = st.lists(
                st.integers(1, 268_435_455), min_size=1, max_size=1
            )
        return st.fixed_dictionaries(chosen).map(lambda found: found or None)

    return st.lists(st.sampled_from(sorted(allowed)), unique=True, max_size=6).flatmap(values)


def publishes(version: Version, sender: Side) -> st.SearchStrategy[Packet]:
    allowed = (
        props.CLIENT_PUBLISH_PROPERTIES
        if sender is Side.CLIENT
        else props.SERVER_PUBLISH_PROPERTIES
    )

    @st.composite
    def build(draw: st.DrawFn) -> Publish:
        qos = draw(st.integers(0, 2))
        properties = draw(properties_for(allowed, version))
        topic = (
            ""
            if properties and P.TOPIC_ALIAS in properties and draw(st.booleans())
            else draw(names)
        )
        packet_id, dup = (draw(packet_ids), draw(st.booleans())) if qos else (0, False)
        return Publish(topic, draw(blobs), qos, packet_id, draw(st.booleans()), dup, properties)

    return build()


def connects(version: Version) -> st.SearchStrategy[Packet]:
    @st.composite
    def build(draw: st.DrawFn) -> Connect:
        short = st.text("abcdefghijklmnopqrstuvwxyz0123456789", min_size=1, max_size=23)
        will = draw(
            st.none()
            | st.builds(
                Will,
                names,
                blobs,
                st.integers(0, 2),
                st.booleans(),
                properties_for(props.WILL_PROPERTIES, version),
            )
        )
        username = draw(st.none() | texts)
        password = (
            draw(st.none() | blobs) if username is not None or version == Version.V5 else None
        )
        properties = draw(properties_for(props.CONNECT_PROPERTIES, version))
        if properties and P.AUTHENTICATION_DATA in properties:
            properties.setdefault(P.AUTHENTICATION_METHOD, "m")
        client_id = draw(
            short
            if version == Version.V3_1
            else texts
            if version == Version.V5
            else texts.filter(bool)
        )
        return Connect(
            client_id,
            version,
            draw(st.booleans()),
            draw(_u16),
            will,
            username,
            password,
            properties,
        )

    return build()


def _one_of(allowed: frozenset[ReasonCode], version: Version) -> st.SearchStrategy[ReasonCode]:
    return (
        st.sampled_from(sorted(allowed)) if version == Version.V5 else st.just(ReasonCode.SUCCESS)
    )


def _acks(version: Version) -> list[st.SearchStrategy[Packet]]:
    properties = properties_for(props.ACK_PROPERTIES, version)
    answers, releases = (
        _one_of(codes.PUBLISH_ACK_CODES, version),
        _one_of(codes.RELEASE_CODES, version),
    )
    return [
        *(st.builds(kind, packet_ids, answers, properties) for kind in (Puback, Pubrec)),
        *(st.builds(kind, packet_ids, releases, properties) for kind in (Pubrel, Pubcomp)),
    ]


def _subscriptions(version: Version) -> st.SearchStrategy[Subscription]:
    if version < Version.V5:
        return st.builds(Subscription, filters, st.integers(0, 2))
    plain = st.builds(
        Subscription, filters, st.integers(0, 2), st.booleans(), st.booleans(), st.integers(0, 2)
    )
    shared = st.builds(
        Subscription,
        shared_filters,
        st.integers(0, 2),
        st.just(False),
        st.booleans(),
        st.integers(0, 2),
    )
    return plain | shared


def client_packets(version: Version) -> st.SearchStrategy[Packet]:
    """Return any packet of a client except CONNECT."""
    subscribe_properties = properties_for(props.SUBSCRIBE_PROPERTIES, version, one_identifier=True)
    some_filters = st.lists(filters, min_size=1, max_size=4)
    kinds: list[st.SearchStrategy[Packet]] = [
        publishes(version, Side.CLIENT),
        *_acks(version),
        st.builds(
            Subscribe,
            packet_ids,
            st.lists(_subscriptions(version), min_size=1, max_size=4),
            subscribe_properties,
        ),
        st.builds(
            Unsubscribe,
            packet_ids,
            some_filters,
            properties_for(props.UNSUBSCRIBE_PROPERTIES, version),
        ),
        st.just(Pingreq()),
        st.builds(
            Disconnect,
            _one_of(codes.CLIENT_DISCONNECT_CODES, version),
            properties_for(props.CLIENT_DISCONNECT_PROPERTIES, version),
        ),
    ]
    if version == Version.V5:
        kinds.append(_auths(codes.CLIENT_AUTH_CODES))
    return st.one_of(kinds)


def server_packets(version: Version) -> st.SearchStrategy[Packet]:
    v5 = version == Version.V5
    refusals = (
        sorted(codes.CONNACK_CODES)
        if v5
        else [ReasonCode(code) for code in (0x84, 0x85, 0x86, 0x87, 0x88)]
    )
    suback_codes = sorted(codes.SUBACK_CODES if v5 else codes.SUBACK_RETURN_CODES)
    unsuback = (
        st.lists(st.sampled_from(sorted(codes.UNSUBACK_CODES)), min_size=1, max_size=4)
        if v5
        else st.builds(list)
    )
    connack_properties = properties_for(props.CONNACK_PROPERTIES, version)
    ack_properties = properties_for(props.ACK_PROPERTIES, version)
    kinds: list[st.SearchStrategy[Packet]] = [
        publishes(version, Side.SERVER),
        *_acks(version),
        st.builds(Connack, st.just(False), st.sampled_from(refusals), connack_properties),
        st.builds(
            Connack,
            st.just(False) if version == Version.V3_1 else st.booleans(),
            st.just(ReasonCode.SUCCESS),
            connack_properties,
        ),
        st.builds(
            Suback,
            packet_ids,
            st.lists(st.sampled_from(suback_codes), min_size=1, max_size=4),
            ack_properties,
        ),
        st.builds(Unsuback, packet_ids, unsuback, ack_properties),
        st.just(Pingresp()),
    ]
    if v5:
        reasons = st.sampled_from(sorted(codes.SERVER_DISCONNECT_CODES))
        kinds.append(
            st.builds(
                Disconnect, reasons, properties_for(props.SERVER_DISCONNECT_PROPERTIES, version)
            )
        )
        kinds.append(_auths(codes.SERVER_AUTH_CODES))
    return st.one_of(kinds)


def _auths(allowed: frozenset[ReasonCode]) -> st.SearchStrategy[Packet]:
    def with_method(properties: Properties | None) -> Properties:
        return {P.AUTHENTICATION_METHOD: "m", **(properties or {})}

    return st.builds(
        Auth,
        st.sampled_from(sorted(allowed)),
        properties_for(props.AUTH_PROPERTIES, Version.V5).map(with_method),
    )


def packets(version: Version, sender: Side) -> st.SearchStrategy[Packet]:
    """Return any packet of a side except CONNECT."""
    return client_packets(version) if sender is Side.CLIENT else server_packets(version)
