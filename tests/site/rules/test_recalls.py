"""Session moves that are called back because the session did not arrive, and suspect sessions that
are looked for (rule 9), on virtual time.
"""

from gateway.site.rules.holder import Outcome
from tests.site.rules.three import Site, assert_nothing_is_swallowed, begin_with, forget
from tests.site.sim_holder import Record, Session


def test_undelivered_export_is_recalled(site: Site) -> None:
    site.come("a")
    session = site.client.session
    site.client.connect("b")
    while "Give" not in site.kinds("a"):
        site.run(0.001)
    site.commit_s = lambda: 0.2  # type: ignore[method-assign]
    site.run(0.1)
    assert site.gateways["b"].holder._coming, "on its way to the disk"
    site.crash("b")
    site.start("b")
    site.run(8.0)
    name, record = site.place()
    assert (name, record.given_to) == ("a", None)
    assert record.session is not None
    assert record.session.number == session


def test_a_doubtful_session_is_looked_for_until_all_have_answered(site: Site) -> None:
    site.move_and_restore()
    site.run(3.0)
    site.gateways["b"].paused = True
    site.run(2.0)
    site.gateways["b"].resume()
    assert len(site.places(site.client.name)) == 2
    site.run(8.0)
    assert site.place()[0] == "b"


def test_a_doubtful_session_that_the_taker_never_got_is_called_back(site: Site) -> None:
    site.come("a")
    forget(site, "c")
    site.client.connect("b")
    while "Give" not in site.kinds("a"):
        site.run(0.001)
    site.crash("b")
    site.start("b")
    site.run(8.0)
    name, record = site.place()
    assert (name, record.given_to, record.suspect) == ("a", None, True)


def test_a_session_is_called_back_although_another_one_names_it(site: Site) -> None:
    begin_with(
        site,
        b=Record(1, Session(1, ((1, 91),)), older=frozenset("c")),
        c=Record(1, Session(2, ((1, 92),)), "a", frozenset("b")),
    )
    site.hear()
    while (record := dict(site.places(site.client.name))["c"]).given_to:
        site.run(0.001)
    assert record.suspect, "at once: a client may come"
    site.run(3.0)
    assert site.place()[0] == "c"
    assert_nothing_is_swallowed(site)


def test_concurrent_recalls_end(site: Site) -> None:
    """Two members call the session back at the same time, as after a power failure. Only one of
    them may get the session.
    """
    begin_with(
        site,
        a=Record(0, Session(1), suspect=True, copied=True),
        c=Record(3, Session(2), suspect=True),
    )
    site.delay = lambda: 0.001  # type: ignore[method-assign]
    for gateway in site.gateways.values():
        gateway.crash()
    for gateway in site.gateways.values():
        gateway.start()
    site.hear()
    site.run(12.0)
    assert site.place()[0] == "c"


def test_departed_session_is_not_ended(site: Site) -> None:
    """c has given its session to a. Then b, while a was silent, began a newer session. c's record
    of the session that has left must not become suspect: if it did, a would not learn that its
    session is over.
    """
    begin_with(
        site,
        a=Record(4, Session(1, ((1, 91),)), older=frozenset("c")),
        b=Record(1, Session(2), older=frozenset("ac")),
        c=Record(3, Session(1, ((1, 91),)), "a", frozenset("b")),
    )
    site.heal("b", "c")
    site.run(3.0)
    site.hear()
    name, record = site.place()
    assert (name, record.session) == ("b", Session(2))


def test_a_doubtful_session_is_looked_for_although_its_client_came_and_went(site: Site) -> None:
    site.come("a")
    copy = dict(site.gateways["a"].disk)
    site.come("b")
    site.client.leave()
    site.eager = 0.0
    site.crash("a")
    site.gateways["a"].restore(copy, set())
    site.start("a")
    site.run(3.0)
    site.said.clear()
    while "Ask" not in site.kinds("a"):
        site.run(0.001)
    a, outcomes = site.gateways["a"], list[Outcome]()
    assert a.member is not None
    a.member.want_session(site.client.name, a.now, outcomes.append, alive=lambda: False)
    site.run(8.0)
    assert [outcome.kind for outcome in outcomes] == ["failed"]
    assert site.place()[0] == "b"
