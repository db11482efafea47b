"""Skills on budgets and approvals: set, close, decide."""

from typing import Literal

from pydantic import Field

from orchestrator import budget_selectors as selectors
from orchestrator.budget_input import SetBudgetInput
from orchestrator.budgets_shown import ApprovalShown, BudgetShown
from orchestrator.models import Budget, Task
from orchestrator.services import approvals, budgets
from orchestrator.services.approvals import Approver
from orchestrator.token_lines import line_of, of_family
from portal.skills.registry import Answer, Call, Caller, Scope, Skill, register
from portal.tokens import tokens
from providers.errors import NotAuthorized, NotFound
from providers.types import Frozen


def _set(given: SetBudgetInput, call: Call) -> Answer:
    caller = call.caller
    scope, subject = given.on
    if scope == "token" and not tokens(caller.user).filter(handle=subject).exists():
        raise NotFound(f"No token {subject[:80]!r}.", pointer="/token")
    _not_its_own(caller, scope, subject)
    open_rows = selectors.budgets(caller.user).filter(scope=scope, subject=subject, closed_at=None)
    _not_elsewhere(caller, {slug for _, slug in (*given.limits(), *given.unasked())}, open_rows.first())
    row = budgets.set_budget(
        caller.user.pk, (scope, subject), given, actor=caller.actor, now=call.now, name=given.name
    )
    return Answer(shown(caller, row), status=200, location=f"/api/v1/budgets/{row.handle}")


def _not_its_own(caller: Caller, scope: str, subject: str) -> None:
    """Refuse a token that would loosen what binds itself.

    Raises:
        NotAuthorized: the budget is set on this token, on one it was made with, or on work of theirs or of
            tokens made with them.
    """
    if not caller.token or caller.may(Scope.ADMIN):
        return
    own = scope == "token" and subject in line_of(caller.user.pk, caller.token)
    if scope in ("task", "group"):
        named = {"handle" if scope == "task" else "group__handle": subject}
        theirs = Task.objects.filter(of_family(caller.user.pk, caller.token), user_id=caller.user.pk)
        own = theirs.filter(**named).exists()
    if own:
        raise NotAuthorized(
            f"A token does not change the budget of its own {scope}.",
            remediation="Let the owner change it, signed in, or with another token that has `manage`.",
        )


def _not_elsewhere(caller: Caller, named: set[str], row: Budget | None) -> None:
    """Refuse a narrowed token what limits charges at a system it may not use.

    Raises:
        NotAuthorized: it names such a system, or would end a limit there.
    """
    limited = set() if row is None else {meter.system for meter in row.meters.all()}
    if not all(caller.reaches(slug) for slug in named | limited):
        raise NotAuthorized(
            "It limits charges at systems that this token may not use.",
            remediation="Let the owner change it, signed in, or with a token of those systems.",
        )


def shown(caller: Caller, row: Budget) -> BudgetShown:
    """Return a budget of the caller as it stands now."""
    return selectors.show_budget(selectors.budgets(caller.user, systems=caller.systems).get(pk=row.pk))


class CloseBudgetInput(Frozen):
    """Which budget to close."""

    budget: str


def _close(given: CloseBudgetInput, call: Call) -> Answer:
    caller = call.caller
    if caller.systems is not None:
        seen = selectors.budgets(caller.user, systems=caller.systems)
        if not seen.filter(handle=given.budget).exists():
            raise NotFound(f"No budget {given.budget[:80]!r}.", pointer="/budget")
    found = selectors.budgets(caller.user).filter(handle=given.budget).first()
    if found is not None:
        _not_its_own(caller, found.scope, found.subject)
        _not_elsewhere(caller, set(), found)
    row = budgets.close_budget(caller.user, given.budget, now=call.now)
    return Answer(shown(caller, row))


class DecideInput(Frozen):
    """What is decided of which approval."""

    approval: str
    decision: Literal["approve", "reject"]
    note: str = Field("", max_length=500, description="Told with the decision.")


def _decide(given: DecideInput, call: Call) -> Answer:
    caller = call.caller
    approver = Approver(caller.user, caller.actor, via="api", token=caller.token, is_person=not caller.token)
    row = approvals.decide_approval(approver, given.approval, given.decision, now=call.now, note=given.note)
    return Answer(selectors.show_approval(row))


register(
    Skill(
        "set_budget",
        "Set what a task, group, project or token may use: charge, hours, attempts, model tokens, deadline.",
        SetBudgetInput,
        BudgetShown,
        (Scope.MANAGE,),
        _set,
        side_effects=True,
        creates=True,
    )
)
register(
    Skill(
        "close_budget",
        "End a budget: it binds nothing any more, its ledger stays.",
        CloseBudgetInput,
        BudgetShown,
        (Scope.MANAGE,),
        _close,
        side_effects=True,
        creates=True,
    )
)
register(
    Skill(
        "decide_approval",
        "Approve or reject what a task would use beyond a budget's threshold; for a person who is signed in.",
        DecideInput,
        ApprovalShown,
        (Scope.SUBMIT, Scope.MANAGE),
        _decide,
        side_effects=True,
        creates=True,
    )
)
