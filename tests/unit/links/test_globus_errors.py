"""What an agent's own words mean: its last line is not always the reason."""

from providers.errors import NotAuthorized, SiteUnreachable
from providers.globus_words import shown
from providers.links.globus_errors import failed_task

WHO = "\n  Globus effective identity: 1234\n  Globus username: bob@example.com"


def test_an_identity_nobody_is_mapped_to_is_not_let_in_and_is_told_the_reason() -> None:
    error = failed_task(f"Identity failed to map to a local user name.  (LookupError) {WHO}", "E")

    assert isinstance(error, NotAuthorized)
    assert str(error).startswith("The Globus Compute endpoint E does not let you in: Identity failed to map")
    assert "bob@example.com" not in str(error)


def test_whom_a_failure_is_about_does_not_hide_what_it_is() -> None:
    error = failed_task(f"Traceback:\nValueError: no such partition{WHO}", "E")

    assert isinstance(error, SiteUnreachable)
    assert "ValueError: no such partition" in str(error)
    assert "no reason given" in str(failed_task("", "E"))


def test_a_token_that_a_service_quotes_is_not_repeated() -> None:
    token = "Ag" + "x1_-" * 12

    assert shown(f"the token  {token}\nis not good") == "the token [token] is not good"
    assert shown("Agreement of the parties") == "Agreement of the parties"
