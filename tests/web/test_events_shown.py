"""Every event type has its own look."""

from federation.event_types import EVENT_TYPES
from portal.web.presenters.events import LOOKS


def test_every_event_type_has_a_colour_and_an_icon() -> None:
    assert {name.rpartition(".")[2] for name in EVENT_TYPES} - set(LOOKS) == set()
