"""The choice of the newest of several claims for a session."""

from gateway.site.rules.search import Claim, Decision, decide

NONE: frozenset[str] = frozenset()


def names(*members: str) -> frozenset[str]:
    return frozenset(members)


def decision(silent: str = "", clean: bool = False, **claims: Claim) -> Decision:
    return decide("me", claims, frozenset(silent), clean)


def test_no_member_has_a_session() -> None:
    assert decision() == Decision(None, 0, NONE, False)


def test_silent_member_may_have_an_older_session() -> None:
    assert decision("c") == Decision(None, 1, names("c"), True)


def test_the_highest_epoch_is_the_newest_among_those_that_know_nothing_of_one_another() -> None:
    assert decision(a=Claim(3, True), b=Claim(5, True)) == Decision("b", 6, names("a", "b"), False)


def test_a_session_that_was_made_while_another_member_was_silent_is_newer_than_its_one() -> None:
    newer = Claim(1, True, older=names("b"))
    assert decision(a=newer, b=Claim(5, True)) == Decision("a", 6, names("a", "b"), False)


def test_two_sessions_that_were_made_without_one_another_are_in_doubt() -> None:
    found = decision(a=Claim(1, True, older=names("b")), b=Claim(5, True, older=names("a")))
    assert (found.source, found.suspect) == ("b", True)


def test_session_made_without_an_ended_one_is_suspect_nevertheless() -> None:
    """Session a is newer than c. The order of b and c is unknown, so the order of a and b is
    unknown, too.
    """
    found = decision(
        a=Claim(1, True, older=names("c")),
        b=Claim(5, True, older=names("c")),
        c=Claim(3, True, older=names("b")),
    )
    assert (found.source, found.suspect) == ("b", True)


def test_member_that_exported_a_session_has_the_older_record() -> None:
    gave = Claim(5, True, "a", names("a"))
    found = decision(a=Claim(6, True, older=names("b")), b=gave)
    assert (found.source, found.suspect) == ("a", False)


def test_session_of_a_holder_unsure_of_a_silent_member_is_suspect() -> None:
    assert decision("c", me=Claim(1, True, unsure=names("c"))).suspect
    assert not decision("c", me=Claim(1, True, unsure=names("b"))).suspect
    assert decision("c", a=Claim(1, True, given_to="c")).suspect


def test_session_moved_while_a_member_is_silent_is_suspect() -> None:
    assert decision("c", a=Claim(1, True)).suspect


def test_a_session_that_is_over_is_not_brought_back_by_an_older_one() -> None:
    over = Claim(1, False, older=names("b"))
    assert decision(a=over, b=Claim(5, True)) == Decision(None, 6, names("a", "b"), False)


def test_clean_start_takes_no_session_and_ends_all() -> None:
    assert decision(clean=True, a=Claim(2, True)) == Decision(None, 3, names("a"), False)
