"""People, their tokens and their requests in Django's admin. No secret, hash or replayed answer is shown."""

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin as BaseGroupAdmin
from django.contrib.auth.admin import UserAdmin as BaseUserAdmin
from django.contrib.auth.models import Group, User
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from unfold.decorators import action, display
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from federation.admin.readonly import ReadOnlyAdmin
from federation.admin.scope import ScopedAdmin, managed
from portal.models import ApiToken, GlobusIdentity, GlobusToken, IdempotencyRecord
from portal.tokens import revoke_token, state_of

admin.site.unregister(User)
admin.site.unregister(Group)


@admin.register(User)
class UserAdmin(BaseUserAdmin, ScopedAdmin):  # type: ignore[type-arg]  # django-stubs wants the model
    """People, with the theme's own forms."""

    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm
    list_display = ("username", "email", "is_active", "is_staff", "is_superuser", "last_login")


@admin.register(Group)
class GroupAdmin(BaseGroupAdmin, ScopedAdmin):  # type: ignore[misc]  # unfold has no types
    """Groups of people, for permissions."""


@admin.register(ApiToken)
class ApiTokenAdmin(ReadOnlyAdmin):
    """API tokens: whose, what they may do, when last used. Revoking is all that can be done to one."""

    actions = ("revoke",)
    list_display = ("handle", "name", "user", "prefix", "state", "scopes", "expires_at", "last_used_at")
    list_select_related = ("user",)
    search_fields = ("=handle", "name", "=user__username")
    json_fields = ("scopes",)
    shown = (
        "handle", "user", "name", "prefix", "scopes", "created_at", "expires_at", "revoked_at",
        "last_used_at",
    )  # fmt: skip

    @display(description="state", label={"active": "success", "expired": "warning", "revoked": "danger"})  # type: ignore[untyped-decorator]
    def state(self, token: ApiToken) -> str:
        """Return active, expired or revoked."""
        return state_of(token, now=timezone.now())

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        """Ask for the right to change tokens, though no field of one can be changed."""
        return managed(request) is None and request.user.has_perm("portal.change_apitoken")

    @action(description="Revoke the chosen tokens", permissions=["revoke"])  # type: ignore[untyped-decorator]
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiToken]) -> None:
        """End them now and for good."""
        now, tokens = timezone.now(), list(queryset.select_related("user"))
        for token in tokens:
            revoke_token(token.user, token.handle, now=now)
        self.message_user(request, f"{len(tokens)} token{'s' if len(tokens) != 1 else ''} revoked.")


@admin.register(IdempotencyRecord)
class IdempotencyRecordAdmin(ReadOnlyAdmin):
    """Which keys were used; what was answered may hold a secret and is not shown."""

    list_display = ("key", "user", "route", "status", "created_at")
    list_select_related = ("user",)
    search_fields = ("=key", "=user__username")
    shown = ("key", "user", "route", "status", "created_at")


@admin.register(GlobusIdentity)
class GlobusIdentityAdmin(ReadOnlyAdmin):
    """Who signs in with which Globus identity."""

    list_display = ("username", "user", "sub", "linked_at")
    list_select_related = ("user",)
    search_fields = ("=sub", "username", "=user__username")
    shown = ("user", "username", "sub", "linked_at")


@admin.register(GlobusToken)
class GlobusTokenAdmin(ReadOnlyAdmin):
    """What people delegated to Facet; the secrets themselves are sealed and never shown."""

    list_display = ("resource_server", "owner", "expires_at", "is_refused", "updated_at")
    list_select_related = ("user",)
    list_filter = ("resource_server", "is_refused")
    search_fields = ("=user__username",)
    shown = ("owner", "resource_server", "scope", "expires_at", "is_refused", "updated_at")

    @admin.display(description="of")
    def owner(self, token: GlobusToken) -> str:
        """Return whose it is."""
        return token.user.get_username() if token.user else "the application itself"
