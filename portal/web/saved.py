"""Templates of tasks: the list, and putting one away with a way back."""

from django.http import HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST, require_safe

from portal import task_templates
from portal.web.guard import SignedInRequest, signed_in
from portal.web.presenters.from_submission import template_rows
from portal.web.rendering import page
from portal.web.told import tell


@require_safe
@signed_in
def template_list(request: SignedInRequest) -> HttpResponse:
    """Every template this user may begin with."""
    rows = template_rows(task_templates.templates(request.user), request.user.pk)
    return page(request, "tasks/templates.html", {"here": "submit", "templates": rows})


@require_POST
@signed_in
def template_delete(request: SignedInRequest, handle: str) -> HttpResponse:
    """Put a template of one's own away; the message carries the way back."""
    row = task_templates.delete_template(request.user, handle, now=timezone.now())
    said = _("Deleted the template “%(name)s”.") % {"name": row.name}
    tell(request, said, undo=reverse("web:template-restore", args=[handle]))
    return redirect("web:template-list")


@require_POST
@signed_in
def template_restore(request: SignedInRequest, handle: str) -> HttpResponse:
    """Bring a template back."""
    row = task_templates.restore_template(request.user, handle, now=timezone.now())
    tell(request, _("Brought back the template “%(name)s”.") % {"name": row.name})
    return redirect("web:template-list")
