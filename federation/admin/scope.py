"""Who sees what in the admin: most by Django's permissions, site managers by the systems they look after."""

from typing import Any

from django.contrib import admin
from django.contrib.auth.models import AnonymousUser
from django.db.models import ForeignKey, Model, QuerySet
from django.http import HttpRequest
from unfold.admin import ModelAdmin

from federation.managers import Managed, managed_by
from federation.models import System


def managed(request: HttpRequest) -> Managed | None:
    """Return the systems of the site manager who asks, read once per request; None for everybody else."""
    kept = vars(request)
    if "facet_managed" not in kept:
        kept["facet_managed"] = managed_by(getattr(request, "user", AnonymousUser()))
    found: Managed | None = kept["facet_managed"]
    return found


class ScopedAdmin(ModelAdmin):  # type: ignore[misc]  # unfold has no types
    """An admin that says what of it a site manager may see and do; unless it says so, nothing.

    A site manager's rights come from here alone: Django's permissions neither widen nor narrow them.
    """

    system_path: str | None = None
    """Lookup from a row to its system's key ("pk" for systems themselves); None: not for site managers."""
    manager_may: frozenset[str] = frozenset({"view"})
    """What a site manager may do with rows of their systems: view, add, change."""

    def _by_scope(self, request: HttpRequest, right: str, obj: Model | None) -> bool | None:
        """Return whether a site manager may; None for everybody else."""
        scope = managed(request)
        if scope is None:
            return None
        if self.system_path is None or right not in self.manager_may:
            return False
        return obj is None or obj.pk is None or self.get_queryset(request).filter(pk=obj.pk).exists()

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Say whether the row, or any, may be seen."""
        by_scope = self._by_scope(request, "view", obj)
        return bool(super().has_view_permission(request, obj)) if by_scope is None else by_scope

    def has_add_permission(self, request: HttpRequest, *more: Any) -> bool:
        """Say whether rows may be added."""
        by_scope = self._by_scope(request, "add", None)
        return bool(super().has_add_permission(request, *more)) if by_scope is None else by_scope

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Say whether the row, or any, may be changed."""
        by_scope = self._by_scope(request, "change", obj)
        return bool(super().has_change_permission(request, obj)) if by_scope is None else by_scope

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Say whether the row, or any, may be deleted."""
        by_scope = self._by_scope(request, "delete", obj)
        return bool(super().has_delete_permission(request, obj)) if by_scope is None else by_scope

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Say whether the list stands in the menu."""
        by_scope = self._by_scope(request, "view", None)
        return bool(super().has_module_permission(request)) if by_scope is None else by_scope

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the rows this person may see."""
        found: QuerySet[Any] = super().get_queryset(request)
        scope = managed(request)
        return found if scope is None else self.of_manager(found, scope)

    def of_manager(self, found: QuerySet[Any], scope: Managed) -> QuerySet[Any]:
        """Return the rows that belong to a site manager's systems."""
        if self.system_path is None:
            return found.none()
        return found.filter(**{f"{self.system_path}__in": scope.ids})

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """Take no other system than a site manager's own, whatever is posted."""
        scope = managed(request)
        if scope is not None and isinstance(db_field, ForeignKey) and db_field.remote_field.model is System:
            kwargs["queryset"] = System.objects.filter(pk__in=scope.ids)
        return super().formfield_for_foreignkey(db_field, request, **kwargs)


def system_filter(path: str = "system") -> type[admin.SimpleListFilter]:
    """Return a filter by system that names no system its reader may not see.

    Args:
        path: lookup from a row to its system.
    """

    class BySystem(admin.SimpleListFilter):
        title = "system"
        parameter_name = "system"

        def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
            scope = managed(request)
            found = System.objects.all() if scope is None else System.objects.filter(pk__in=scope.ids)
            return list(found.values_list("slug", "name"))

        def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
            return queryset.filter(**{f"{path}__slug": self.value()}) if self.value() else queryset

    return BySystem
