"""`manage.py globus_function`: register Facet's one function for sites that allow only listed functions."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError
from globus_sdk import AccessTokenAuthorizer, ComputeClientV3
from globus_sdk.exc import GlobusError

from portal.globus.application import compute_url
from portal.globus.tokens import service_token
from providers.errors import FacetError
from providers.links.globus_wire import function_document, source_digest


class Command(BaseCommand):
    """Made once per release by the operator; every user's connection then names its id."""

    help = "Register Facet's function publicly, as the application, and print its id for allowed_functions."

    def handle(self, *args: Any, **options: Any) -> None:  # Django's signature
        """Print the id and the SHA-256 of the source."""
        try:
            client = ComputeClientV3(
                authorizer=AccessTokenAuthorizer(service_token()), base_url=compute_url()
            )
            made = client.register_function(function_document(public=True))["function_uuid"]
        except (FacetError, GlobusError) as error:
            raise CommandError(f"Globus Compute did not take the function: {error}") from error
        self.stdout.write(f"{made}  (source {source_digest()[:12]})")
