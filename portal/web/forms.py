"""The submit form: words a person types in, the task input of the skills out; decides nothing."""

import re
import shlex
from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from orchestrator.envelope.spellings import duration_s
from providers.dialects.scripts.quantities import Misspelled

OBJECTIVES = (
    ("", _("earliest completion")),
    ("soonest_start", _("soonest start")),
    ("lowest_charge", _("lowest charge")),
    ("risk_averse", _("least risk of a late end")),
)
ARCHITECTURES = (("", _("any")), ("x86_64", "x86_64"), ("aarch64", "aarch64"))
SIGNALS = (
    ("", _("saves nothing")),
    *((word, f"SIG{word}") for word in ("USR1", "USR2", "TERM", "INT", "HUP")),
)
HEDGES = (("", _("at one system")), ("on", _("at two; the first start wins")))
RANGES = ("gpus", "cpus", "nodes", "memory", "walltime")
COUNTS = frozenset({"gpus", "cpus", "nodes"})
WIRE = {"memory": "memory_mib", "walltime": "walltime_s"}
"""Envelope fields whose form field has a shorter name: the form takes "64G" and "2:00:00"."""
POINTERS = (
    *((f"/envelope/{WIRE.get(name, name)}/max", f"{name}_max") for name in RANGES),
    *((f"/envelope/{WIRE.get(name, name)}", f"{name}_min") for name in RANGES),
    ("/envelope/accelerator/min_memory_mib", "accelerator_memory"),
    ("/envelope/accelerator", "accelerator_types"),
    ("/envelope/architecture", "architecture"),
    ("/envelope/container/image", "container_image"),
    ("/envelope/container", "container_runtime"),
    ("/envelope/software", "software"),
    ("/envelope/runtime", "runtime"),
    ("/envelope/policy/exclude_systems", "exclude_systems"),
    ("/envelope/policy", "allow_systems"),
    ("/envelope/objective", "objective"),
    ("/environment/modules", "modules"),
    ("/environment/conda", "conda"),
    ("/environment/variables", "variables"),
    ("/environment/setup", "setup"),
    ("/checkpoint/before_s", "checkpoint_before"),
    ("/checkpoint/resume", "checkpoint_resume"),
    ("/checkpoint", "checkpoint_signal"),
    ("/hedge/min_wait_s", "hedge_wait"),
    ("/hedge", "hedge"),
    ("/retry", "max_attempts"),
    ("/name", "name"),
    ("/command", "command"),
    ("/script", "script"),
    ("/workdir", "workdir"),
)
"""JSON pointer prefixes of the task input, most exact first, with the form field that speaks for each."""


def field_of(pointer: str) -> str | None:
    """Return the form field that a JSON pointer into the task input falls on; None = the whole form."""
    return next(
        (name for prefix, name in POINTERS if pointer == prefix or pointer.startswith(f"{prefix}/")), None
    )


def _text(label: Any, *, placeholder: str = "", help_text: Any = "", **more: Any) -> forms.CharField:
    attrs = {"class": "input", "placeholder": placeholder, "autocomplete": "off", "spellcheck": "false"}
    return forms.CharField(
        label=label, required=False, help_text=help_text, widget=forms.TextInput(attrs=attrs), **more
    )


def _lines(label: Any, *, placeholder: str = "", help_text: Any = "", rows: int = 3) -> forms.CharField:
    attrs = {"class": "input code", "placeholder": placeholder, "rows": rows, "spellcheck": "false"}
    return forms.CharField(
        label=label,
        required=False,
        help_text=help_text,
        strip=False,
        max_length=262_144,
        widget=forms.Textarea(attrs=attrs),
    )


def _choice(label: Any, choices: tuple[tuple[str, Any], ...]) -> forms.ChoiceField:
    return forms.ChoiceField(
        label=label, required=False, choices=choices, widget=forms.Select(attrs={"class": "input"})
    )


class TaskForm(forms.Form):
    """Everything the submit page asks. Empty fields say nothing, so that a script may speak for them."""

    name = _text(_("Name"), placeholder="md-equil-041", max_length=120)
    work = forms.ChoiceField(
        choices=(("command", _("Command")), ("script", _("Batch script"))), initial="command"
    )
    command = _text(_("Command"), placeholder="python train.py --epochs 3", max_length=8000)
    script = _lines(
        _("Batch script"),
        placeholder="#!/bin/bash\n#SBATCH --gpus=4\n#SBATCH --time=02:00:00\n\nsrun ./simulate",
        rows=14,
    )
    gpus_min = _text(_("GPUs"), placeholder="1")
    gpus_max = _text(_("GPUs, at most"), placeholder="4")
    cpus_min = _text(_("CPUs"), placeholder="8")
    cpus_max = _text(_("CPUs, at most"))
    nodes_min = _text(_("Nodes"), placeholder="1")
    nodes_max = _text(_("Nodes, at most"))
    memory_min = _text(_("Memory, in all"), placeholder="64G")
    memory_max = _text(_("Memory, at most"))
    walltime_min = _text(_("Wall time"), placeholder="1:00:00")
    walltime_max = _text(_("Wall time, at most"))
    runtime = _text(_("Expected runtime"), placeholder="40:00", help_text=_("Only used to rank systems."))
    accelerator_types = _text(_("GPU types"), placeholder="a100, h100", help_text=_("Any of them will do."))
    accelerator_memory = _text(_("Memory of each GPU"), placeholder="40G")
    architecture = _choice(_("Processor"), ARCHITECTURES)
    objective = _choice(_("Aim for"), OBJECTIVES)
    container_runtime = _text(_("Container runtime"), placeholder="apptainer")
    container_image = _text(_("Container image"), placeholder="docker://…")
    software = _text(
        _("Software"), placeholder="gromacs>=2024, cuda", help_text=_("Must be installed there.")
    )
    allow_systems = _text(_("Only on"), placeholder="anvil, delta")
    exclude_systems = _text(_("Never on"), placeholder="vista")
    modules = _text(_("Modules"), placeholder="cuda/12.4 openmpi")
    conda = _text(_("Conda environment"), placeholder="torch")
    variables = _lines(_("Variables"), placeholder="OMP_NUM_THREADS=8", help_text=_("One NAME=value a line."))
    setup = _lines(_("Set-up lines"), help_text=_("Run before the work, as they are."))
    workdir = _text(_("Working directory"), help_text=_("Empty: a fresh directory of the task."))
    max_attempts = _text(_("Attempts, at most"), placeholder="3")
    checkpoint_signal = _choice(_("Checkpoint on"), SIGNALS)
    checkpoint_before = _text(
        _("Signal before the end"), placeholder="2:00", help_text=_("Of the wall time; empty: 2 minutes.")
    )
    checkpoint_resume = _text(
        _("Resume command"),
        placeholder="python train.py --resume $FACET_CHECKPOINT_DIR",
        help_text=_("Run where an attempt goes on from a checkpoint; empty: the same work again."),
        max_length=8000,
    )
    hedge = _choice(_("Wait"), HEDGES)
    hedge_wait = _text(
        _("At two from a wait of"),
        placeholder="1:00",
        help_text=_("That 9 of 10 such jobs stay within; empty: 1 minute. Both sites must allow it."),
    )
    words = _lines(
        _("Describe it in words"), placeholder="4 A100 with 40 GB each for 8 hours, apptainer", rows=2
    )
    saved_as = _text(_("Name of the template"), placeholder="md-equilibration")
    sharing = forms.CharField(required=False, max_length=100)
    once = forms.CharField(required=False, max_length=64, widget=forms.HiddenInput)
    origin = forms.CharField(required=False, max_length=64, widget=forms.HiddenInput)
    """Handle of the task or template it was filled from."""
    needs_work = True
    """Whether an input without command and script is refused when it is read."""
    folded: tuple[str, ...] = (
        *("accelerator_memory", "architecture", "allow_systems", "exclude_systems", "container_runtime"),
        *("container_image", "software", "checkpoint_signal", "checkpoint_before", "checkpoint_resume"),
        *("hedge", "hedge_wait"),
    )
    """The fields under "More"."""

    @property
    def more_open(self) -> bool:
        """Whether something under "More" is said or at fault: nothing that counts is folded away."""
        return any(self[name].value() or self[name].errors for name in self.folded)

    def clean(self) -> dict[str, Any]:
        """Turn the fields into the task input, kept as `task_input`."""
        cleaned: dict[str, Any] = super().clean() or {}
        envelope = self._envelope(cleaned)
        task: dict[str, Any] = {}
        for key in ("name", "workdir"):
            if cleaned.get(key):
                task[key] = cleaned[key]
        work = cleaned.get("work") or "command"
        if cleaned.get(work) or self.needs_work:
            task[work] = cleaned.get(work, "").replace("\r\n", "\n")
        environment = self._environment(cleaned)
        if envelope or work == "command":
            task["envelope"] = envelope
        if environment:
            task["environment"] = environment
        task |= self._lasting(cleaned)
        if cleaned.get("max_attempts"):
            task["retry"] = {"max_attempts": self._count("max_attempts", cleaned["max_attempts"])}
        self.task_input = task
        return cleaned

    def _envelope(self, cleaned: dict[str, Any]) -> dict[str, Any]:
        envelope: dict[str, Any] = {}
        for name in RANGES:
            value = self._range(name, cleaned)
            if value is not None:
                envelope[WIRE.get(name, name)] = value
        accelerator = _given(
            types=_words(cleaned, "accelerator_types"), min_memory_mib=cleaned.get("accelerator_memory")
        )
        container = _given(runtime=_words(cleaned, "container_runtime"), image=cleaned.get("container_image"))
        policy = _given(
            allow_systems=_words(cleaned, "allow_systems"), exclude_systems=_words(cleaned, "exclude_systems")
        )
        return envelope | _given(
            accelerator=accelerator,
            container=container,
            policy=policy,
            software=[_software(word) for word in _words(cleaned, "software", separator=",")],
            architecture=_words(cleaned, "architecture"),
            objective=cleaned.get("objective"),
            runtime=_given(estimate_s=cleaned.get("runtime")),
        )

    def _lasting(self, cleaned: dict[str, Any]) -> dict[str, Any]:
        """Return how the work outlives its wall time and shortens its wait; details alone ask for neither."""
        checkpoint = _given(
            signal=cleaned.get("checkpoint_signal"),
            resume=(cleaned.get("checkpoint_resume") or "").strip(),
        )
        before_s = self._seconds("checkpoint_before", cleaned)
        if before_s is not None:
            checkpoint["before_s"] = before_s
        if checkpoint and "signal" not in checkpoint and "checkpoint_signal" not in self.errors:
            self.add_error("checkpoint_signal", _("Choose the signal on which the work saves itself, too."))
        min_wait_s = self._seconds("hedge_wait", cleaned)
        if min_wait_s is not None and not cleaned.get("hedge") and "hedge" not in self.errors:
            self.add_error("hedge", _("Choose to wait at two systems, or leave their wait empty."))
        hedge: dict[str, bool | int] = {"enabled": True} if cleaned.get("hedge") else {}
        if hedge and min_wait_s is not None:
            hedge |= {"min_wait_s": min_wait_s}
        return _given(checkpoint=checkpoint, hedge=hedge)

    def _seconds(self, field: str, cleaned: dict[str, Any]) -> int | None:
        written = (cleaned.get(field) or "").strip()
        if not written or written == "0":
            return 0 if written else None
        try:
            return duration_s(written)
        except Misspelled as fault:
            self.add_error(field, str(fault))
            return None

    def _range(self, name: str, cleaned: dict[str, Any]) -> Any:
        low, high = cleaned.get(f"{name}_min") or "", cleaned.get(f"{name}_max") or ""
        if not low and not high:
            return None
        if not low:
            self.add_error(f"{name}_min", _("Say the least that would do, too."))
            return None
        if name in COUNTS:
            low, high = self._count(f"{name}_min", low), self._count(f"{name}_max", high) if high else ""
        return {"min": low, "max": high} if high != "" else low

    def _count(self, field: str, written: str) -> int | str:
        if re.fullmatch(r"\d{1,9}", written.strip()):
            return int(written)
        self.add_error(field, _("A whole number, please; “%(written)s” is not one.") % {"written": written})
        return written

    def _environment(self, cleaned: dict[str, Any]) -> dict[str, Any]:
        variables: dict[str, str] = {}
        for line in (cleaned.get("variables") or "").splitlines():
            if not line.strip():
                continue
            name, sign, value = line.partition("=")
            if not sign or not re.fullmatch(r"[A-Za-z_]\w*", name.strip()):
                self.add_error("variables", _("“%(line)s” is not NAME=value.") % {"line": line.strip()})
                continue
            variables[name.strip()] = value.strip()
        return _given(
            modules=_words(cleaned, "modules"),
            conda=cleaned.get("conda"),
            variables=variables,
            setup=[line for line in (cleaned.get("setup") or "").splitlines() if line.strip()],
        )


class WhereForm(TaskForm):
    """The same without the work: what an envelope alone needs to be asked where it would run."""

    needs_work = False
    folded = (
        *("nodes_min", "nodes_max", "architecture", "container_runtime", "software"),
        *("allow_systems", "exclude_systems"),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["work"].required = False


def asked_fields(form: TaskForm) -> dict[str, str]:
    """Return what was typed into the form, silences left out: the state that an address carries."""
    return {
        name: str(value).strip()
        for name in form.fields
        if name not in NOT_IN_ADDRESS and (value := form[name].value()) and str(value).strip()
    }


NOT_IN_ADDRESS = frozenset({"once", "work", "words", "saved_as", "sharing", "origin"})


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value}


def _words(cleaned: dict[str, Any], name: str, *, separator: str = r",\s") -> list[str]:
    return [word.strip() for word in re.split(f"[{separator}]+", cleaned.get(name) or "") if word.strip()]


def _software(word: str) -> dict[str, str]:
    name, version = re.match(r"([^<>=!~\s]+)\s*(.*)", word).groups()  # type: ignore[union-attr]  # word is not blank
    return {"name": name, "version": version} if version else {"name": name}


def command_line(argv: list[str] | str) -> str:
    """Return a command as one would type it."""
    return argv if isinstance(argv, str) else shlex.join(argv)
