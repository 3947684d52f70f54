"""Delivery of each message to a session exactly once while it moves between the gateways of a site.

In: sessions that leave, arrive, or come back; notices of other gateways (`addresses.py`) and their
messages for a single session. Out: forwarders (`journey.py`), forwarded messages, and notices in
the queues for other gateways. All changes are part of the open changes.

  a session leaves       a forwarder takes its place in the router, in the same commit
  it arrives             ASK to all: messages published here until now were for it at its old
                         place, later ones are for it here
  ASK is heard           CUT to all, the same for messages published at that gateway
  CUT is heard           messages forwarded by that gateway are for the session here from now on,
                         and no longer for a forwarder of an earlier move
  ASK is heard where     the forwarder's queue goes to the session's new place, page by page, and
  the session was        so do later messages
  the move is over there, HERE asks all where it is: ASK, or GONE
  and none was heard
  it comes back          the forwarder's queue goes to the session here
  all have cut, nothing is left, and no earlier forwarder sends
                         END to the session's place; the forwarder ends
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from gateway.broker.core import Core
from gateway.broker.session import Session
from gateway.config import INSIDE, QueueSection
from gateway.mqtt.topics import SHARE_PREFIX, SYSTEM_PREFIX, split_shared
from gateway.site.moving.addresses import Kind, Stage, new_lineage
from gateway.site.moving.cuts import ask, close, end_if_over, say, send_to
from gateway.site.moving.journey import Follower, Journey, journey_of
from gateway.site.moving.journeys import journeys_of, note
from gateway.store.move_rows import FORWARDER_PREFIX, OWN, Giving
from gateway.system.logs import about

log = logging.getLogger(__name__)

_FOLLOWERS = 4
"""Divisor: there may be one forwarder for this many sessions of the limit."""


def follow(core: Core, order: Giving) -> None:
    """Put a forwarder in the place of a session that leaves with the changes about to be sealed."""
    journeys, session = journeys_of(core), core.by_id[order.session]
    earlier = journey_of(session)
    if earlier is not None:
        journeys.drop(session)
        note(core, session)
    wanted = [
        item
        for item in session.subscriptions.values()
        if not split_shared(item.topic_filter)[1].startswith(SYSTEM_PREFIX)
    ]
    if not journeys.me or not wanted:
        return
    journey = Journey(Stage(new_lineage(), 0))
    if earlier is not None:
        journey = Journey(earlier.stage, earlier.closed, earlier.tails, earlier.filters)
    room = journeys.followers < max(1, core.limits.sessions // _FOLLOWERS)
    order.journey = (*journey.following, journeys.me, int(room))
    if not room:
        journeys.refused += 1
        if core.log_throttle.allows("followers"):
            text = "too many sessions have left: messages that are late for one more are lost"
            log.warning(text, extra=about(client=session.client, reason="followers"))
        return
    journey.follower = follower = Follower(order.key, session.user)
    if not any(item.topic_filter.startswith(SHARE_PREFIX) for item in wanted):
        follower.awaited = set()
    number = core.next_session()
    client = f"{FORWARDER_PREFIX}{number}"  # two forwarders may share a stage
    found = Session(core, number, client, queueing(core, session.client), session.expiry, 0, INSIDE)
    found.left = session.left
    core.by_id[number] = found
    core.changes.sessions[number] = found
    core.changes.flows[found] = None
    note(core, found)
    journeys.add(found, journey)
    for subscription in wanted:
        core.router.subscribe(found, subscription)
        core.changes.subscriptions[found, subscription.topic_filter] = None


def is_follower(client: str) -> bool:
    return client.startswith(FORWARDER_PREFIX)


def queueing(core: Core, client: str) -> QueueSection:
    """Return how messages wait for the forwarder of a client's session."""
    section = core.config.queueing(client)
    return QueueSection(full="drop the oldest", messages=section.messages, bytes=section.bytes)


def over(core: Core, key: str) -> None:
    """Handle the end of a move here: the session is elsewhere, or nowhere. Ask for its place,
    unless it is known.
    """
    found = journeys_of(core).waiting(key)
    if found is not None:
        journey, follower = found
        follower.gone = set()
        say(core, journeys_of(core).queues, Kind.HERE, [journey.following])


def arrived(core: Core, session: Session) -> None:
    """Handle a session that has arrived, or has come back to the gateway that it left."""
    journey = journey_of(session)
    if journey is None:
        return
    core.router.matches_again(session)
    note(core, session)
    if OWN in journey.tails:
        _come_back(core, session, journey)
    else:
        ask(core, journey.stage)
    end_if_over(core, session, journey)


def _come_back(core: Core, session: Session, journey: Journey) -> None:
    """Give the queue of a forwarder to its session, which is here again."""
    found = journeys_of(core).followers_of(journey.following)  # empty if there were too many
    waiting = [item for item in found if item[2].member is None]
    if not any(item[2].member == OWN for item in found) and not waiting:
        journey.tails.discard(OWN)
    for left, its, follower in waiting:
        journey.closed, journey.filters = set(its.closed), its.filters
        journey.tails |= its.tails
        for topic_filter in list(left.subscriptions):
            core.router.unsubscribe(left, topic_filter)
            core.changes.subscriptions[left, topic_filter] = None
        send_to(core, left, its, follower, OWN)
        end_if_over(core, left, its)
    if journey.closed:
        ask(core, journey.stage)


def begin(core: Core, me: str, given: Collection[str], tell: Callable[[], None]) -> None:
    """Start the site, with the queues for its other gateways in `journeys.queues`. given: keys of
    sessions that have left and that no gateway has taken.
    """
    journeys = journeys_of(core)
    journeys.me, journeys.tell = me, tell
    others = journeys.queues.keys()
    for session, journey in journeys:
        follower = journey.follower
        journey.closed &= others
        journey.tails &= others | {OWN}
        note(core, session)
        if follower is None:
            arrived(core, session)
        elif follower.member is None:
            if follower.key not in given:
                over(core, follower.key)
        elif follower.member in others | {OWN}:
            send_to(core, session, journey, follower, follower.member)
        else:
            core.effects.end(session)
        end_if_over(core, session, journey)


def end_journeys(core: Core) -> None:
    """End all journeys, because there is no site any more."""
    for session, journey in journeys_of(core):
        if journey.follower is None:
            close(core, session)
        else:
            core.effects.end(session)
