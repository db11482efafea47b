"""The forms of tokens and subscriptions: words a person types in, the inputs of the verbs out."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from portal.skills.registry import Scope
from portal.web.presenters.shared import SystemRef
from providers.errors import FacetError, InvalidInput

SCOPES = (
    (Scope.READ.value, gettext_lazy("read"), gettext_lazy("see systems, tasks, results and events")),
    (Scope.DRAFT.value, gettext_lazy("draft"), gettext_lazy("draft envelopes and preview placements")),
    (Scope.SUBMIT.value, gettext_lazy("submit"), gettext_lazy("submit and cancel, which spends allocations")),
    (Scope.MANAGE.value, gettext_lazy("manage"), gettext_lazy("cancel, place again, change subscriptions")),
    (Scope.ADMIN.value, gettext_lazy("admin"), gettext_lazy("administer this installation")),
)
LIFETIMES = (
    ("7", gettext_lazy("7 days")),
    ("30", gettext_lazy("30 days")),
    ("90", gettext_lazy("90 days")),
    ("365", gettext_lazy("a year")),
    ("", gettext_lazy("never")),
)
TARGETS = (
    ("webhook", gettext_lazy("Webhook"), gettext_lazy("signed requests to an address of yours")),
    ("email", gettext_lazy("E-mail"), gettext_lazy("a digest to your own address")),
    ("cursor", gettext_lazy("Bridge"), gettext_lazy("you fetch and acknowledge, as facet bridge does")),
)
FAMILIES = (
    ("task.*", gettext_lazy("tasks")),
    ("group.*", gettext_lazy("groups")),
    ("attempt.*", gettext_lazy("attempts")),
    ("transfer.*", gettext_lazy("transfers")),
    ("system.*", gettext_lazy("systems")),
    ("budget.*", gettext_lazy("budgets")),
    ("milestone.*", gettext_lazy("milestones")),
)
DIGESTS = (("daily", gettext_lazy("once a day")), ("hourly", gettext_lazy("once an hour")))
_FIELDS = {"expires_in_days": "lifetime", "types": "more_types"}
"""Members of the verbs' inputs whose form field has another name."""


def _line(label: Any, **more: Any) -> forms.CharField:
    attrs = {
        "class": "input",
        "autocomplete": "off",
        "spellcheck": "false",
        "placeholder": more.pop("hint", ""),
    }
    return forms.CharField(label=label, widget=forms.TextInput(attrs=attrs), **more)


def _select(label: Any, choices: Sequence[tuple[str, Any]], **more: Any) -> forms.ChoiceField:
    widget = forms.Select(attrs={"class": "input"})
    return forms.ChoiceField(label=label, choices=choices, required=False, widget=widget, **more)


def _several(label: Any, choices: Iterable[tuple[str, Any]] = ()) -> forms.MultipleChoiceField:
    return forms.MultipleChoiceField(label=label, choices=list(choices), required=False)


def _chosen(form: forms.Form, name: str) -> list[str]:
    """Return the boxes of a field that are ticked: as sent, or as the form began."""
    return [str(word) for word in form[name].value() or ()]


class TokenForm(forms.Form):
    """A token to be made."""

    name = _line(gettext_lazy("Name"), max_length=80, hint="lab-agent")
    lifetime = _select(gettext_lazy("Ends after"), LIFETIMES, initial="90")
    scopes = _several(gettext_lazy("May"))
    systems = _several(gettext_lazy("Only on"))
    attended = forms.BooleanField(label=gettext_lazy("attended"), required=False)

    def __init__(
        self, data: Any = None, *, held: Iterable[Scope], systems: Iterable[SystemRef] = (), **more: Any
    ) -> None:
        """Offer the scopes the person holds and the systems they know."""
        super().__init__(data, auto_id="id_token_%s", **more)
        may = {scope.value for scope in held}
        self.offered = tuple(row for row in SCOPES if row[0] in may)
        self.fields["scopes"].choices = [(word, label) for word, label, _why in self.offered]  # type: ignore[attr-defined]  # a choice field
        self.refs = tuple(systems)
        self.fields["systems"].choices = [(ref.slug, ref.name) for ref in self.refs]  # type: ignore[attr-defined]  # a choice field

    @property
    def chosen_scopes(self) -> list[str]:
        """The scopes that are ticked."""
        return _chosen(self, "scopes")

    @property
    def chosen_systems(self) -> list[str]:
        """The systems that are ticked."""
        return _chosen(self, "systems")

    def given(self) -> dict[str, Any]:
        """Return the input of the verb."""
        days = self.cleaned_data["lifetime"]
        return {
            "name": self.cleaned_data["name"],
            "scopes": self.cleaned_data["scopes"],
            "systems": self.cleaned_data["systems"],
            "expires_in_days": int(days) if days else None,
            "attended": self.cleaned_data["attended"],
        }

    def clean_scopes(self) -> list[str]:
        """Refuse a token that may do nothing."""
        chosen: list[str] = self.cleaned_data["scopes"]
        if not chosen:
            raise forms.ValidationError(_("Choose what it may do; “read” is the least."))
        return chosen


class SubscriptionForm(forms.Form):
    """A subscription to be made or changed; its target never changes."""

    name = _line(gettext_lazy("Name"), max_length=80, required=False, hint="nightly-hook")
    target = _select(gettext_lazy("How"), [(word, label) for word, label, _why in TARGETS])
    url = _line(
        gettext_lazy("Address"), required=False, max_length=1000, hint="https://hooks.example.org/facet"
    )
    digest = _select(gettext_lazy("How often"), DIGESTS)
    families = _several(gettext_lazy("Hears of"), FAMILIES)
    more_types = _line(
        gettext_lazy("Single types"), required=False, max_length=600, hint="task.failed, budget.exhausted"
    )
    subject = _line(gettext_lazy("Only about"), required=False, max_length=60, hint="task_… grp_… anvil")
    only_named = forms.BooleanField(label=gettext_lazy("Only tasks that name it"), required=False)

    def __init__(self, data: Any = None, **more: Any) -> None:
        """Name its fields so that another form may stand on the same page."""
        super().__init__(data, auto_id="id_subscription_%s", **more)

    @property
    def chosen_families(self) -> list[str]:
        """The families that are ticked."""
        return _chosen(self, "families")

    def types(self) -> list[str]:
        """Return the event types, families first; none = those that wake."""
        single = [word for word in re.split(r"[,\s]+", self.cleaned_data["more_types"]) if word]
        return [*self.cleaned_data["families"], *single]

    def given(self) -> dict[str, Any]:
        """Return the input of the verb that makes one."""
        said = self.cleaned_data
        target = said["target"] or "webhook"
        return {
            "name": said["name"],
            "target": target,
            "types": self.types(),
            "only_named": said["only_named"],
            **({"subject": said["subject"]} if said["subject"] else {}),
            **({"url": said["url"]} if target == "webhook" else {}),
            **({"digest": said["digest"] or "daily"} if target == "email" else {}),
        }

    def changes(self, target: str) -> dict[str, Any]:
        """Return the input of the verb that changes one of this target."""
        said = self.cleaned_data
        return {
            "name": said["name"],
            "types": self.types(),
            "subject": said["subject"],
            "only_named": said["only_named"],
            **({"url": said["url"]} if target == "webhook" else {}),
            **({"digest": said["digest"] or "daily"} if target == "email" else {}),
        }


def initial_of(types: Sequence[str]) -> dict[str, Any]:
    """Return how the form says these event types."""
    families = {word for word, _label in FAMILIES}
    return {
        "families": [word for word in types if word in families],
        "more_types": ", ".join(word for word in types if word not in families),
    }


def _field_of(pointer: str) -> str:
    member = pointer.strip("/").partition("/")[0]
    return _FIELDS.get(member, member)


def blame(form: forms.Form, error: FacetError, field_of: Callable[[str], str] = _field_of) -> None:
    """Write what a verb refused beside the field that `field_of` its pointer names; else above the form."""
    problems = error.problems if isinstance(error, InvalidInput) else ()
    for pointer, _code, sentence in problems:
        name = field_of(pointer)
        form.add_error(name if name in form.fields else None, sentence)
    if not problems:
        form.add_error(None, f"{error.message} {error.remediation}".strip())
