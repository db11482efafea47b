"""GET tasks/{id}/ro-crate: where a task's results come from, as RO-Crate metadata."""

from typing import Any

from django.http import HttpResponse
from django.utils import timezone

from orchestrator.origins import origin_of
from orchestrator.provenance import MEDIA_TYPE, ro_crate
from portal.api.views import ApiView, as_json, owned_task
from portal.skills.registry import Scope, require
from portal.version import version


class TaskCrate(ApiView):
    """GET tasks/{id}/ro-crate."""

    def get(self, _request: Any, handle: str) -> HttpResponse:
        """Return the document, to be saved as ro-crate-metadata.json beside the task's files."""
        require(self.caller, Scope.READ)
        task = owned_task(self.caller, handle)
        origin = origin_of(task, facet_version=version())
        response = as_json(ro_crate(origin, now=timezone.now()))
        response["Content-Type"] = MEDIA_TYPE
        response["Content-Disposition"] = 'attachment; filename="ro-crate-metadata.json"'
        return response
