"""The submit page: fill, draft from a script, preview, submit. Each asks one verb."""

from dataclasses import dataclass, field
from typing import Any, cast
from uuid import uuid4

from django.http import HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext
from django.views.decorators.http import require_http_methods, require_POST

from orchestrator.leaders import refresh_leaders
from orchestrator.services import tasks
from portal import task_templates
from portal.models import TaskTemplate
from portal.skills import registry
from portal.skills.envelopes import DraftedEnvelope
from portal.skills.registry import Caller, Scope
from portal.web.forms import NOT_IN_ADDRESS, TaskForm, field_of
from portal.web.guard import SignedInRequest, signed_in
from portal.web.presenters.from_decision import decision_view
from portal.web.presenters.from_earlier import Origin, again, earlier
from portal.web.presenters.from_submission import (
    draft_view,
    drafted_view,
    form_problems,
    form_values,
    problems_by_field,
    template_rows,
)
from portal.web.presenters.submission import Draft, Earlier, Preview, Problem
from portal.web.rendering import page
from portal.web.seen import system_refs
from portal.web.told import tell
from providers.errors import Conflict, FacetError, InvalidInput, NotFound

TEMPLATE = "tasks/submit.html"
TEMPLATES_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Answer:
    """What the preview found: where it would run, and what was read from the script."""

    preview: Preview
    draft: Draft | None = None
    said: dict[str, object] = field(default_factory=dict)
    """The envelope as script and form say it together, silences left out."""
    asked: dict[str, object] | None = None
    """The task input that was asked about; None = it is none yet."""
    earlier: Earlier | None = None
    """What the form says otherwise than the task or template it was filled from."""


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def task_new(request: SignedInRequest) -> HttpResponse:
    """Show the form; with POST draft, preview or submit."""
    if request.method != "POST":
        values = _initial(request)
        said = values.get("command") or values.get("script")
        answer = _ask(request, TaskForm(values)) if said or values.get("origin") else None
        return _show(request, TaskForm(initial=values), answer)
    form = TaskForm(request.POST)
    action = request.POST.get("action", "submit")
    if action == "draft":
        return _filled(request, form)
    if action == "words":
        return _from_words(request, form)
    if action == "save":
        return _save(request, form)
    if action == "preview" or not form.is_valid():
        answer = _ask(request, form)
        return _show(request, form, answer, status=422 if answer.preview.problems else 200)
    return _submit(request, form)


@require_POST
@signed_in
def task_preview(request: SignedInRequest) -> HttpResponse:
    """Answer only the preview beside the form."""
    answer = _ask(request, TaskForm(request.POST))
    context = {
        "preview": answer.preview,
        "draft": answer.draft,
        "asked": answer.asked,
        "earlier": answer.earlier,
    }
    return page(request, f"{TEMPLATE}#preview", context)


def _initial(request: SignedInRequest) -> dict[str, object]:
    """Return what the address asks to fill in: a task (`from`), a template, and any field by its name."""
    values: dict[str, object] = {"once": uuid4().hex, "work": "command"}
    if handle := request.GET.get("from"):
        task = tasks.find_task(request.user, handle)
        values |= form_values(task.spec, task.envelope.original or {}) | {"origin": task.handle}
    if handle := request.GET.get("template"):
        body = task_templates.find_template(request.user, handle).body
        values |= form_values(body, body.get("envelope") or {}) | {"origin": handle}
    named = (set(TaskForm.base_fields) - NOT_IN_ADDRESS) | {"work", "origin"}
    return values | {name: request.GET[name] for name in named & request.GET.keys()}


def _show(
    request: SignedInRequest, form: TaskForm, answer: Answer | None = None, *, status: int = 200
) -> HttpResponse:
    context = {
        "here": "submit",
        "form": form,
        "preview": answer.preview if answer else None,
        "draft": answer.draft if answer else None,
        "asked": answer.asked if answer else None,
        "earlier": answer.earlier if answer else None,
        "templates": template_rows(task_templates.templates(request.user)[:TEMPLATES_SHOWN], request.user.pk),
        "projects": task_templates.projects(request.user),
    }
    return page(request, TEMPLATE, context, status=status)


def _ask(request: SignedInRequest, form: TaskForm) -> Answer:
    """Return where the work would run, or every fault that keeps it from being a task."""
    valid, origin = form.is_valid(), _origin(request, form)
    since = earlier(origin, form) if origin else None
    if not valid:
        return Answer(Preview(None, form_problems(form)), earlier=since)
    given = again(origin, form.task_input) if origin else form.task_input
    try:
        decision, understood = tasks.preview(request.user, given, now=timezone.now())
    except InvalidInput as error:
        problems = problems_by_field(form, error.problems, error.message)
        return Answer(Preview(None, problems), earlier=since)
    except FacetError as error:
        problem = Problem("", "", f"{error.message} {error.remediation}".strip())
        return Answer(Preview(None, (problem,)), earlier=since)
    draft = draft_view(understood.draft, understood.conflicts) if understood else None
    said = (
        understood.draft.given.model_dump(mode="json", exclude_none=True)
        if understood and understood.draft
        else {}
    )
    return Answer(Preview(decision_view(decision, system_refs())), draft, said, given, since)


def _origin(request: SignedInRequest, form: TaskForm) -> Origin | None:
    """Return what the form was filled from; None = nothing, or it is not there any more."""
    handle = str(form["origin"].value() or "")
    if not handle:
        return None
    try:
        if handle.startswith("task_"):
            task = tasks.find_task(request.user, handle)
            return Origin(task.handle, task.name, task.spec, task.envelope.original or {})
        row = task_templates.find_template(request.user, handle)
        return Origin(row.handle, row.name, row.body, row.body.get("envelope") or {}, is_template=True)
    except NotFound:
        return None


def _input_of(request: SignedInRequest, form: TaskForm) -> dict[str, Any]:
    """Return the task input of a valid form, with what its origin says beyond the form's fields."""
    origin = _origin(request, form)
    return again(origin, form.task_input) if origin else form.task_input


def _filled(request: SignedInRequest, form: TaskForm) -> HttpResponse:
    """Show the form again with what the script says written into its empty fields."""
    answer = _ask(request, form)
    if not answer.said:
        return _show(request, form, answer, status=422 if answer.preview.problems else 200)
    typed = {name: value for name, value in request.POST.items() if value}
    return _show(request, TaskForm(initial=form_values({}, answer.said) | typed), answer)


def _from_words(request: SignedInRequest, form: TaskForm) -> HttpResponse:
    """Show the form again with what plain words say written into it; words of the form itself stand."""
    caller = Caller(request.user, f"user:{request.user.get_username()}", frozenset({Scope.DRAFT}))
    words = request.POST.get("words", "").strip()
    typed = {name: value for name, value in request.POST.items() if value}
    try:
        answer = registry.skill("draft_envelope").call({"text": words}, caller, now=timezone.now())
    except FacetError as error:
        again = TaskForm(initial=typed)
        problem = Problem("words", str(form.fields["words"].label), error.message)
        return _show(request, again, Answer(Preview(None, (problem,))), status=422)
    drafted = cast("DraftedEnvelope", answer.value)
    filled = TaskForm(initial=form_values({}, drafted.said) | typed)
    return _show(request, filled, Answer(Preview(None), drafted_view(drafted)))


def _save(request: SignedInRequest, form: TaskForm) -> HttpResponse:
    """Keep what the form says as a template, and go on with it."""
    if not form.is_valid():
        return _show(request, form, Answer(Preview(None, form_problems(form))), status=422)
    sharing, _sign, project = form.cleaned_data["sharing"].partition(":")
    try:
        row = task_templates.save_template(
            request.user,
            form.cleaned_data["saved_as"],
            _input_of(request, form),
            now=timezone.now(),
            sharing=sharing or TaskTemplate.PRIVATE,
            project=project,
        )
    except InvalidInput as error:
        problems = tuple(
            (pointer.removeprefix("/body") if pointer.startswith("/body") else "", code, sentence)
            for pointer, code, sentence in error.problems
        )
        answer = Answer(Preview(None, problems_by_field(form, problems, error.message)))
        return _show(request, form, answer, status=422)
    tell(request, gettext("Saved as the template “%(name)s”.") % {"name": row.name})
    return redirect(f"{reverse('web:task-new')}?template={row.handle}")


def _submit(request: SignedInRequest, form: TaskForm) -> HttpResponse:
    once = form.cleaned_data["once"]
    given = _input_of(request, form) | ({"client_ref": f"page:{once}"} if once else {})
    actor = f"user:{request.user.get_username()}"
    try:
        refreshed = refresh_leaders(request.user, given, now=timezone.now())
        submitted = tasks.submit_task(
            request.user, given, actor=actor, now=refreshed.now, notes=refreshed.notes
        )
    except Conflict as error:
        # The same form was sent twice: there is one task, and this is it.
        return redirect("web:task-show", handle=error.facts["task"])
    except InvalidInput as error:
        for pointer, _code, sentence in error.problems:
            name = field_of(pointer)
            form.add_error(name, sentence if name else f"{pointer or '/'}: {sentence}")
        if not error.problems:
            form.add_error(None, error.message)
        answer = Answer(Preview(None, problems_by_field(form, error.problems, error.message)))
        return _show(request, form, answer, status=422)
    return redirect("web:task-show", handle=submitted.task.handle)
