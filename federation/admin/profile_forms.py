"""The forms of a system's page: its profile as YAML, announced downtime, and why it is disabled."""

import hashlib
import re
from datetime import UTC, datetime
from typing import Any

from django import forms
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from unfold.widgets import UnfoldAdminFileFieldWidget, UnfoldAdminTextareaWidget, UnfoldAdminTextInputWidget

from federation.managers import is_site_manager
from federation.models import System
from federation.profile import MaintenanceWindow, ProfileDocument
from federation.profile_yaml import read_profile
from providers.errors import InvalidInput, ProfileInvalid
from providers.reading import read

_MAX_BYTES = 512 * 1024
_LINE = re.compile(r"line (\d+)")


def fingerprint(text: str) -> str:
    """Return what tells a text that was reviewed from one that was not."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _unix(text: str) -> str:
    """Return the text with the line ends that files have; browsers send CRLF."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text if not text or text.endswith("\n") else text + "\n"


class ProfileForm(forms.Form):
    """A profile as text; `document` is what it says, once the form is valid."""

    text = forms.CharField(
        label="Profile",
        strip=False,
        required=False,
        widget=UnfoldAdminTextareaWidget(
            attrs={
                "class": "facet-code",
                "rows": 34,
                "spellcheck": "false",
                "wrap": "off",
                "data-numbered": "",
            }
        ),
    )
    file = forms.FileField(
        label="or a file",
        required=False,
        widget=UnfoldAdminFileFieldWidget(),
        help_text="A YAML file takes the place of the text above.",
    )
    note = forms.CharField(
        label="Note",
        required=False,
        max_length=200,
        widget=UnfoldAdminTextInputWidget(),
        help_text="Why it changes; kept with the revision.",
    )
    base = forms.IntegerField(required=False, widget=forms.HiddenInput())
    """The revision in force when the page was drawn."""
    reviewed = forms.CharField(required=False, widget=forms.HiddenInput())
    """Fingerprint of the text whose difference was shown."""

    def __init__(self, *args: Any, system: System | None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.system = system
        self.document: ProfileDocument | None = None

    def clean(self) -> dict[str, Any]:
        """Read the profile; every fault stands at the field with its line and column."""
        given = super().clean() or {}
        if given.get("file"):
            given["text"] = self._file(given["file"])
        given["text"] = _unix(given.get("text") or "")
        try:
            document = read_profile(given["text"])
        except ProfileInvalid as fault:
            self.add_error("text", [message for _, _, message in fault.problems])
            return given
        if self.system is not None and document.system != self.system.slug:
            message = (
                f"line 1: `system: {document.system}` is not this system; write `system: {self.system.slug}`"
            )
            self.add_error("text", message)
        elif self.system is None and System.objects.filter(slug=document.system).exists():
            self.add_error("text", f"There is a system `{document.system}` already; edit it on its own page.")
        else:
            self.document = document
        return given

    @staticmethod
    def _file(file: Any) -> str:  # Django's uploaded file has no useful type
        body = file.read(_MAX_BYTES + 1)
        try:
            return str(body.decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            raise ValidationError({"file": f"This file is not UTF-8 text: {error.reason}."}) from None

    @property
    def faults(self) -> list[tuple[int | None, str]]:
        """Return what is wrong with the text, each fault with its line where it names one."""
        found = [str(message) for message in self.errors.get("text", ())]
        placed = [(_LINE.match(message), message) for message in found]
        return [(int(place[1]) if place else None, message) for place, message in placed]

    @property
    def was_reviewed(self) -> bool:
        """Whether the difference of just this text to the revision in force was shown."""
        revision = self.system.profile.revision if self.system and self.system.profile else None
        return (
            self.cleaned_data.get("reviewed") == fingerprint(self.cleaned_data["text"])
            and self.cleaned_data.get("base") == revision
        )


class WindowForm(forms.Form):
    """One announced downtime, in UTC."""

    start_at = forms.CharField(
        label="Begins (UTC)", widget=UnfoldAdminTextInputWidget(attrs={"placeholder": "2027-01-31T08:00Z"})
    )
    end_at = forms.CharField(
        label="Ends (UTC)", widget=UnfoldAdminTextInputWidget(attrs={"placeholder": "2027-01-31T20:00Z"})
    )
    partitions = forms.CharField(
        required=False,
        widget=UnfoldAdminTextInputWidget(),
        help_text="Names with commas between them; empty = the whole system.",
    )
    reason = forms.CharField(required=False, max_length=200, widget=UnfoldAdminTextInputWidget())

    def __init__(self, *args: Any, profile: ProfileDocument, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.profile = profile
        self.window: MaintenanceWindow | None = None

    def clean(self) -> dict[str, Any]:
        """Read the window as the profile's schema does."""
        given = super().clean() or {}
        if self.errors:
            return given
        names = [name.strip() for name in given["partitions"].split(",") if name.strip()]
        unknown = [name for name in names if name not in self.profile.partitions]
        if unknown:
            self.add_error("partitions", f"No such partition: {', '.join(unknown)}.")
        instants = {name: _in_utc(given[name]) for name in ("start_at", "end_at")}
        try:
            self.window = read(MaintenanceWindow, {**given, **instants, "partitions": names}, what="window")
        except InvalidInput as error:
            for where, _, message in error.problems:
                self.add_error(where.strip("/").split("/")[0] or "end_at", message)
        return given


def _in_utc(text: str) -> str:
    """Return an instant in UTC, which is what the form says one without an offset is in."""
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        return text  # the schema says what is wrong
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone(UTC).isoformat()


class DisableForm(forms.Form):
    """Why a system takes no new work."""

    reason = forms.CharField(
        max_length=200,
        widget=UnfoldAdminTextInputWidget(),
        help_text="Shown to everybody who may use the system.",
    )


class ManagerForm(forms.Form):
    """Who is appointed, or dismissed: by user name, so that nobody has to be listed."""

    username = forms.CharField(
        label="User name",
        max_length=150,
        widget=UnfoldAdminTextInputWidget(attrs={"autocapitalize": "none", "autocomplete": "off"}),
        help_text="Of an active account. It becomes one of staff, and sees in the admin only the systems "
        "it looks after.",
    )
    dismiss = forms.CharField(required=False, widget=forms.HiddenInput())

    def __init__(self, *args: Any, system: System, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.system = system
        self.person: User | None = None

    @property
    def is_dismissal(self) -> bool:
        """Whether the appointment ends."""
        return bool(self.cleaned_data.get("dismiss"))

    def clean(self) -> dict[str, Any]:
        """Find the person; an administrator cannot be narrowed by mistake."""
        given = super().clean() or {}
        name = given.get("username", "")
        person = User.objects.filter(username=name).first()
        if not name:
            return given
        if person is None or not person.is_active:
            self.add_error("username", f"There is no active account `{name}`.")
        elif given.get("dismiss"):
            self.person = person
        elif person.is_superuser:
            self.add_error("username", f"`{name}` is a superuser, who looks after every system already.")
        elif person.is_staff and not is_site_manager(person):
            self.add_error(
                "username",
                f"`{name}` is a member of staff with rights of another kind, which an appointment would take "
                "away; remove the staff status first if that is meant.",
            )
        else:
            self.person = person
        return given
