"""The federation in Django's admin: systems and profiles, connections, allocations, what was seen."""

from federation.admin.access import AllocationAdmin, ConnectionAdmin
from federation.admin.history import ChargeAdmin, EventAdmin, SnapshotAdmin
from federation.admin.systems import SystemAdmin

__all__ = [
    "AllocationAdmin",
    "ChargeAdmin",
    "ConnectionAdmin",
    "EventAdmin",
    "SnapshotAdmin",
    "SystemAdmin",
]
