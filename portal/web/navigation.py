"""The places of the portal: what the rail, the tab bar, the palette and the shortcuts lead to."""

from dataclasses import dataclass

from django.urls import NoReverseMatch, reverse
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy


@dataclass(frozen=True, slots=True)
class Place:
    """One place: `here` is what its pages call themselves, `key` the letter that follows `g`."""

    here: str
    names: tuple[str, ...]
    """URL names; the first that exists is where the place is."""
    label: str | Promise
    icon: str
    key: str
    short: str | Promise = ""
    """The label where room is scarce; "" = the label itself."""
    is_first: bool = False
    """Stands in the tab bar of a phone; the others are behind "More"."""
    section: str | Promise = ""
    """A heading that begins above this place."""

    @property
    def url(self) -> str:
        """Return where the place is; "" while no page has its name."""
        for name in self.names:
            try:
                return reverse(name)
            except NoReverseMatch:
                continue
        return ""


PLACES = (
    Place("federation", ("web:federation-show",), _("Federation"), "layout-grid", "f", is_first=True),
    Place(
        "where",
        ("web:where",),
        _("Where would it run?"),
        "route",
        "w",
        pgettext_lazy("short for: where would it run?", "Where?"),
        is_first=True,
    ),
    Place("submit", ("web:task-new",), _("Submit"), "plus", "n", is_first=True),
    Place("tasks", ("web:task-list",), _("Tasks"), "list-checks", "t", is_first=True, section=_("Work")),
    Place("groups", ("web:group-list",), _("Groups"), "layers", "g"),
    Place("data", ("web:transfer-list",), _("Data"), "database", "d"),
    Place("events", ("web:event-list",), _("Events"), "activity", "e"),
    Place("allocations", ("web:allocation-list",), _("Allocations"), "wallet", "a", section=_("You")),
    Place("agents", ("web:agent-list",), _("Agents"), "bot", "b"),
    Place("account", ("web:account-show", "globus:connection-list"), _("Account"), "user", "u"),
)


def places() -> tuple[Place, ...]:
    """Return the places that exist, in the order of the rail."""
    return tuple(place for place in PLACES if place.url)
