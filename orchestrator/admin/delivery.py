"""Who is told of events, and how that goes. Secrets, and what of an address may be one, are not shown."""

from urllib.parse import urlsplit

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from unfold.decorators import action

from federation.admin.readonly import ReadOnlyAdmin, state_label
from federation.admin.scope import managed
from orchestrator.models import Delivery, DeliveryState, Subscription, SubscriptionState
from orchestrator.services.subscriptions import edit_subscription, replay


@admin.register(Subscription)
class SubscriptionAdmin(ReadOnlyAdmin):
    """Subscriptions to events; pausing and resuming is all that can be done to somebody's here."""

    actions = ("pause", "resume")
    list_display = ("handle", "name", "user", "target", "receiver", state_label(), "failures", "updated_at")
    list_select_related = ("user",)
    list_filter = ("target", "state")
    search_fields = ("=handle", "=user__username", "name")
    json_fields = ("types",)
    shown = (
        "handle", "user", "name", "target", "receiver", "types", "subject", "only_named", "digest_s", "state",
        "reason", "cursor_seq", "acked_seq", "failures", "due_at", "created_at", "updated_at",
    )  # fmt: skip

    @admin.display(description="receiver")
    def receiver(self, subscription: Subscription) -> str:
        """Return the host of a webhook: its path is often a secret."""
        return urlsplit(subscription.url).hostname or "–"

    def has_steer_permission(self, request: HttpRequest) -> bool:
        """Ask for the right to change subscriptions, though no field of one can be changed here."""
        return managed(request) is None and request.user.has_perm("orchestrator.change_subscription")

    @action(description="Pause the chosen subscriptions", permissions=["steer"])  # type: ignore[untyped-decorator]
    def pause(self, request: HttpRequest, queryset: QuerySet[Subscription]) -> None:
        """Send nothing meanwhile; events are kept for them."""
        self._put(request, queryset, SubscriptionState.PAUSED)

    @action(description="Resume the chosen subscriptions", permissions=["steer"])  # type: ignore[untyped-decorator]
    def resume(self, request: HttpRequest, queryset: QuerySet[Subscription]) -> None:
        """Send again, with a clean record."""
        self._put(request, queryset, SubscriptionState.ACTIVE)

    def _put(self, request: HttpRequest, queryset: QuerySet[Subscription], state: SubscriptionState) -> None:
        for subscription in queryset:
            edit_subscription(subscription, {"state": state.value}, now=timezone.now())
        self.message_user(request, f"{len(queryset)} {state.value}.")


@admin.register(Delivery)
class DeliveryAdmin(ReadOnlyAdmin):
    """Events on their way to webhooks, each with the log of its tries."""

    actions = ("send_again",)
    list_display = (
        "handle",
        "subscription",
        "event_type",
        state_label(),
        "attempts",
        "next_at",
        "created_at",
    )
    list_select_related = ("subscription",)
    list_filter = ("state",)
    search_fields = ("=handle", "=event", "=subscription__handle")
    json_fields = ("tries",)
    shown = (
        "handle", "subscription", "seq", "event", "event_type", "state", "attempts", "next_at", "created_at",
        "delivered_at", "tries",
    )  # fmt: skip

    def has_steer_permission(self, request: HttpRequest) -> bool:
        """Ask for the right to change deliveries, though no field of one can be changed."""
        return managed(request) is None and request.user.has_perm("orchestrator.change_delivery")

    @action(description="Send those given up again", permissions=["steer"])  # type: ignore[untyped-decorator]
    def send_again(self, request: HttpRequest, queryset: QuerySet[Delivery]) -> None:
        """Make the dead ones among them due; the receiver knows a repetition by its id."""
        dead = list(queryset.filter(state=DeliveryState.DEAD.value).select_related("subscription"))
        now = timezone.now()
        for row in dead:
            replay(row.subscription, after=None, delivery=row.handle, dead_only=True, now=now)
        self.message_user(request, f"{len(dead)} of {len(queryset)} will be sent again.")
