"""Where would it run? An envelope in, ranked places out; the whole question stands in the address."""

from urllib.parse import urlencode

from django.http import HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from orchestrator.services.advising import advise
from orchestrator.services.envelopes import draft_by_rules
from portal.web.forms import WhereForm, asked_fields
from portal.web.guard import SignedInRequest, signed_in
from portal.web.presenters.from_advice import closest_query, relaxation_rows
from portal.web.presenters.from_decision import decision_view
from portal.web.presenters.from_submission import form_problems, form_values, problems_by_field
from portal.web.presenters.submission import Problem, WhereAnswer
from portal.web.rendering import page
from portal.web.seen import system_refs
from providers.errors import FacetError, InvalidInput

TEMPLATE = "where.html"


@require_safe
@signed_in
def where(request: SignedInRequest) -> HttpResponse:
    """Ask placement for what the address says; nothing is kept."""
    if words := request.GET.get("words", "").strip():
        return _from_words(request, words)
    form = WhereForm(request.GET or None, initial={"work": "command"})
    said = asked_fields(form) if form.is_bound else {}
    address = f"{reverse('web:where')}?{urlencode(said)}" if said else reverse("web:where")
    context = {"here": "where", "form": form, "query": urlencode(said), "words": "", "words_problem": ""}
    response = page(
        request, TEMPLATE, context | {"answer": _ask(request, form) if said else None}, parts=("answer",)
    )
    if "part" in request.GET:
        response["HX-Replace-Url"] = address
    return response


def _from_words(request: SignedInRequest, words: str) -> HttpResponse:
    """Go on to the address that says the same as plain words; what was not understood is said on the page."""
    try:
        draft = draft_by_rules(text=words[:2000], script=None, dialect=None)
    except InvalidInput as error:
        return _not_understood(request, words, error.message)
    given = draft.given.model_dump(mode="json", exclude_none=True)
    values = {name: str(value) for name, value in form_values({}, given).items() if name != "work"}
    if not values:
        why = _("These words name no GPUs, CPUs, memory or time. Say, for example: 4 A100 for 8 hours.")
        return _not_understood(request, words, why)
    return redirect(f"{reverse('web:where')}?{urlencode(values)}")


def _not_understood(request: SignedInRequest, words: str, why: str) -> HttpResponse:
    context = {
        "here": "where",
        "form": WhereForm(initial={"work": "command"}),
        "query": "",
        "answer": None,
        "words": words,
        "words_problem": why,
    }
    return page(request, TEMPLATE, context, status=422)


def _ask(request: SignedInRequest, form: WhereForm) -> WhereAnswer:
    """Return where it would run and what would help, or every fault of the question."""
    if not form.is_valid():
        return WhereAnswer(None, form_problems(form))
    try:
        advice = advise(request.user, form.task_input, now=timezone.now())
    except InvalidInput as error:
        return WhereAnswer(None, problems_by_field(form, error.problems, error.message))
    except FacetError as error:
        return WhereAnswer(None, (Problem("", "", f"{error.message} {error.remediation}".strip()),))
    refs, said = system_refs(), asked_fields(form)
    return WhereAnswer(
        decision_view(advice.decision, refs),
        relaxations=relaxation_rows(advice.relaxations, refs, said),
        closest_query=closest_query(advice.decision.closest, said),
        asked=form.task_input,
    )
