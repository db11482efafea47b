"""Work in Django's admin: tasks and their history, budgets and approvals, subscriptions and deliveries."""

from orchestrator.admin.budgets import ApprovalAdmin, BudgetAdmin, BudgetLineAdmin
from orchestrator.admin.delivery import DeliveryAdmin, SubscriptionAdmin
from orchestrator.admin.work import AttemptAdmin, TaskAdmin

__all__ = [
    "ApprovalAdmin",
    "AttemptAdmin",
    "BudgetAdmin",
    "BudgetLineAdmin",
    "DeliveryAdmin",
    "SubscriptionAdmin",
    "TaskAdmin",
]
