"""The judge of random schedules (world.py) accepts from a site only what a single broker could do,
too.
"""

import pytest

from tests.site.rules.three import Site


@pytest.fixture
def site() -> Site:
    """Return a site with a client at c. The disk of c has the client's message, but the client has
    not received PUBREC.
    """
    site = Site()
    site.eager = 1.0
    site.come("c", 0.5)
    site.client.publish()
    while not any(site.is_written(message) for message, _ in site.client.flight.values()):
        site.run(0.0001)
    site.client.leave()
    return site


def begin_unheard(site: Site, gateway: str, seconds: float) -> None:
    """Let the client begin a session at a gateway, and disconnect before it gets the CONNACK. Then
    run the site for `seconds`.
    """
    site.client.connect(gateway)
    begun = site.reached["none"]
    while site.reached["none"] == begun:
        site.run(0.001)
    site.client.leave()
    site.run(seconds)


def test_client_that_missed_a_truthful_session_present_0_may_double_its_messages(
    site: Site,
) -> None:
    message = site.client.flight[1]
    site.crash("c")
    site.gateways["c"].restore({}, set())
    site.client.marked = True  # as if it had read the log about the restore
    site.start("c")
    site.run(3.0)
    begin_unheard(site, "b", 0.5)
    assert site.client.flight == {1: message}
    site.come("a")
    assert site.client.session == site.place_at("a").session.number  # type: ignore[union-attr]
    assert site.reached["PUBCOMP"] == 1
    site.client.publish()  # newer messages go to one disk, once
    site.run(0.5)
    site.client.doubted -= 1
    with pytest.raises(AssertionError, match="is there twice"):
        site.check_first(site.client.name, message[0])


def test_client_that_missed_a_session_present_0_in_doubt_may_not(site: Site) -> None:
    site.silence("c")
    begin_unheard(site, "b", 0.5)
    holder = site.gateways["b"].holder
    record = site.place_at("b")
    assert record.unheard
    holder.change(site.client.name, record._replace(suspect=False, unheard=False))
    site.hear()
    assert site.place()[0] == "b"
    with pytest.raises(AssertionError, match="is there twice"):
        site.come("b")
