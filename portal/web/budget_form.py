"""The form of a budget: words a person types in, the input of `set_budget` out."""

import re
from datetime import UTC
from typing import Any

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

SCOPES = (
    ("project", gettext_lazy("a project")),
    ("task", gettext_lazy("a task")),
    ("group", gettext_lazy("a group")),
    ("token", gettext_lazy("a token")),
)
ENDS = (
    ("hold", gettext_lazy("nothing new starts")),
    ("cancel", gettext_lazy("running work is ended, too")),
)
AMOUNTS = ("max_node_hours", "max_accelerator_hours", "max_attempts", "max_model_tokens")


def _line(label: Any, *, hint: str = "", **more: Any) -> forms.CharField:
    attrs = {"class": "input", "autocomplete": "off", "spellcheck": "false", "placeholder": hint}
    return forms.CharField(
        label=label, required=False, max_length=600, widget=forms.TextInput(attrs=attrs), **more
    )


def _select(label: Any, choices: tuple[tuple[str, Any], ...]) -> forms.ChoiceField:
    return forms.ChoiceField(
        label=label, choices=choices, required=False, widget=forms.Select(attrs={"class": "input"})
    )


class BudgetForm(forms.Form):
    """Everything a budget may say; an empty field does not bind."""

    scope = _select(gettext_lazy("On"), SCOPES)
    subject = _line(
        gettext_lazy("Which"),
        hint="md-campaign",
        help_text=gettext_lazy("The word of a project, or a handle: task_…, grp_…, tok_…"),
    )
    name = _line(gettext_lazy("Name"))
    max_charge = _line(
        gettext_lazy("Charge"),
        hint="anvil=100, delta=40",
        help_text=gettext_lazy("By system, in its own unit."),
    )
    max_node_hours = _line(gettext_lazy("Node-hours"))
    max_accelerator_hours = _line(gettext_lazy("GPU-hours"), hint="200")
    max_attempts = _line(gettext_lazy("Attempts"))
    max_model_tokens = _line(gettext_lazy("Model tokens"))
    deadline = forms.DateTimeField(
        label=gettext_lazy("Deadline, UTC"),
        required=False,
        widget=forms.DateTimeInput(
            attrs={"class": "input", "type": "datetime-local"}, format="%Y-%m-%dT%H:%M"
        ),
    )
    thresholds = _line(
        gettext_lazy("Tell at"),
        hint="50 %, 80 %",
        help_text=gettext_lazy("Shares of a limit that are told once."),
    )
    on_exhaustion = _select(gettext_lazy("When used up"), ENDS)
    ask_charge = _line(
        gettext_lazy("Charge"),
        hint="anvil=20",
        help_text=gettext_lazy("One attempt that would hold more waits."),
    )
    ask_node_hours = _line(gettext_lazy("Node-hours"))
    ask_accelerator_hours = _line(gettext_lazy("GPU-hours"))

    def __init__(self, data: Any = None, **more: Any) -> None:
        """Name its fields so that another form may stand on the same page."""
        super().__init__(data, auto_id="id_budget_%s", **more)

    def clean(self) -> dict[str, Any]:
        """Read amounts, pairs and shares."""
        said: dict[str, Any] = super().clean() or {}
        if not said.get("subject"):
            self.add_error("subject", _("Say which; a budget is set on one thing."))
        for name in ("max_charge", "ask_charge"):
            said[name] = self._pairs(name, said.get(name) or "")
        for name in (*AMOUNTS, "ask_node_hours", "ask_accelerator_hours"):
            self._number(name, said.get(name) or "")
        said["thresholds"] = self._shares(said.get("thresholds") or "")
        return said

    def _number(self, name: str, written: str) -> None:
        if written and not re.fullmatch(r"\d{1,14}(\.\d{1,4})?", written.strip()):
            self.add_error(name, _("“%(written)s” is not an amount.") % {"written": written})

    def _pairs(self, name: str, written: str) -> dict[str, str]:
        found: dict[str, str] = {}
        for word in re.split(r"[,\n]+", written):
            if not word.strip():
                continue
            system, sign, amount = (part.strip() for part in word.partition("="))
            if not sign or not re.fullmatch(r"\d{1,14}(\.\d{1,4})?", amount):
                self.add_error(name, _("“%(word)s” is not system=amount.") % {"word": word.strip()})
            else:
                found[system] = amount
        return found

    def _shares(self, written: str) -> list[float]:
        found = []
        for word in re.split(r"[,\s]+", written.replace("%", " ")):
            if not word:
                continue
            if not re.fullmatch(r"\d{1,3}(\.\d+)?", word) or not 0 < float(word) <= 100:
                self.add_error("thresholds", _("“%(word)s” is not a share of 100.") % {"word": word})
            else:
                found.append(round(float(word) / 100, 4))
        return found

    def given(self) -> dict[str, Any]:
        """Return the input of `set_budget`."""
        said = self.cleaned_data
        whole = ("max_attempts", "max_model_tokens")
        limits = {
            name: int(float(said[name])) if name in whole else said[name] for name in AMOUNTS if said[name]
        }
        asks = {
            name: said[f"ask_{name}"]
            for name in ("charge", "node_hours", "accelerator_hours")
            if said[f"ask_{name}"]
        }
        return {
            said["scope"] or "project": said["subject"],
            "name": said["name"],
            **limits,
            **({"max_charge": said["max_charge"]} if said["max_charge"] else {}),
            **({"deadline": said["deadline"].replace(tzinfo=UTC).isoformat()} if said["deadline"] else {}),
            **({"thresholds": said["thresholds"]} if said["thresholds"] else {}),
            **({"on_exhaustion": said["on_exhaustion"]} if said["on_exhaustion"] else {}),
            **({"approve_above": asks} if asks else {}),
        }

    @staticmethod
    def field_of(pointer: str) -> str:
        """Return the field that speaks for a JSON pointer into that input; "" = the whole form."""
        parts = pointer.strip("/").split("/")
        if parts[0] == "approve_above" and len(parts) > 1:
            return f"ask_{parts[1]}"
        return "subject" if parts[0] in {"task", "group", "project", "token"} else parts[0]
