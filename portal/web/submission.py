"""The submit page: fill, draft from a script, preview, submit. Each asks one verb."""

from dataclasses import dataclass, field
from uuid import uuid4

from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST

from orchestrator.leaders import refresh_leaders
from orchestrator.services import tasks
from portal.web.forms import TaskForm, field_of
from portal.web.guard import SignedInRequest, signed_in
from portal.web.presenters.from_decision import decision_view
from portal.web.presenters.from_submission import draft_view, form_problems, form_values, problems_by_field
from portal.web.presenters.submission import Draft, Preview, Problem
from portal.web.rendering import page
from portal.web.seen import system_refs
from providers.errors import Conflict, FacetError, InvalidInput

TEMPLATE = "tasks/submit.html"


@dataclass(frozen=True, slots=True)
class Answer:
    """What the preview found: where it would run, and what was read from the script."""

    preview: Preview
    draft: Draft | None = None
    said: dict[str, object] = field(default_factory=dict)
    """The envelope as script and form say it together, silences left out."""


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def task_new(request: SignedInRequest) -> HttpResponse:
    """Show the form; with POST draft, preview or submit."""
    if request.method != "POST":
        return _show(request, TaskForm(initial=_initial(request)))
    form = TaskForm(request.POST)
    action = request.POST.get("action", "submit")
    if action == "draft":
        return _filled(request, form)
    if action == "preview" or not form.is_valid():
        answer = _ask(request, form)
        return _show(request, form, answer, status=422 if answer.preview.problems else 200)
    return _submit(request, form)


@require_POST
@signed_in
def task_preview(request: SignedInRequest) -> HttpResponse:
    """Answer only the preview beside the form."""
    answer = _ask(request, TaskForm(request.POST))
    context = {"preview": answer.preview, "draft": answer.draft}
    return page(request, f"{TEMPLATE}#preview", context)


def _initial(request: SignedInRequest) -> dict[str, object]:
    """Return what the address asks to fill in: another task (`from`), or systems (`allow_systems`)."""
    values: dict[str, object] = {"once": uuid4().hex, "work": "command"}
    if handle := request.GET.get("from"):
        task = tasks.find_task(request.user, handle)
        values |= form_values(task.spec, task.envelope.original or {})
    if allowed := request.GET.get("allow_systems"):
        values["allow_systems"] = allowed
    return values


def _show(
    request: SignedInRequest, form: TaskForm, answer: Answer | None = None, *, status: int = 200
) -> HttpResponse:
    context = {
        "here": "submit",
        "form": form,
        "preview": answer.preview if answer else None,
        "draft": answer.draft if answer else None,
    }
    return page(request, TEMPLATE, context, status=status)


def _ask(request: SignedInRequest, form: TaskForm) -> Answer:
    """Return where the work would run, or every fault that keeps it from being a task."""
    if not form.is_valid():
        return Answer(Preview(None, form_problems(form)))
    try:
        decision, understood = tasks.preview(request.user, form.task_input, now=timezone.now())
    except InvalidInput as error:
        return Answer(Preview(None, problems_by_field(form, error.problems, error.message)))
    except FacetError as error:
        return Answer(Preview(None, (Problem("", "", f"{error.message} {error.remediation}".strip()),)))
    draft = draft_view(understood.draft, understood.conflicts) if understood else None
    said = (
        understood.draft.given.model_dump(mode="json", exclude_none=True)
        if understood and understood.draft
        else {}
    )
    return Answer(Preview(decision_view(decision, system_refs())), draft, said)


def _filled(request: SignedInRequest, form: TaskForm) -> HttpResponse:
    """Show the form again with what the script says written into its empty fields."""
    answer = _ask(request, form)
    if not answer.said:
        return _show(request, form, answer, status=422 if answer.preview.problems else 200)
    typed = {name: value for name, value in request.POST.items() if value}
    return _show(request, TaskForm(initial=form_values({}, answer.said) | typed), answer)


def _submit(request: SignedInRequest, form: TaskForm) -> HttpResponse:
    once = form.cleaned_data["once"]
    given = form.task_input | ({"client_ref": f"page:{once}"} if once else {})
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
