"""The pages' addresses; each mirrors the API's path of the same thing."""

from django.urls import path

from portal.web import (
    account,
    agents,
    events,
    federation,
    find,
    groups,
    submission,
    subscriptions,
    task_list,
    tasks,
    where,
)

app_name = "web"
urlpatterns = [
    path("", federation.federation_show, name="federation-show"),
    path("systems/<slug:slug>/", federation.system_show, name="system-show"),
    path("tasks/new/", submission.task_new, name="task-new"),
    path("tasks/preview/", submission.task_preview, name="task-preview"),
    path("tasks/", task_list.task_list, name="task-list"),
    path("tasks/cancel/", task_list.task_bulk_cancel, name="task-bulk-cancel"),
    path("tasks/<str:handle>/", tasks.task_show, name="task-show"),
    path("tasks/<str:handle>/cancel/", tasks.task_cancel, name="task-cancel"),
    path("tasks/<str:handle>/replan/", tasks.task_replan, name="task-replan"),
    path("where/", where.where, name="where"),
    path("find/", find.find_show, name="find"),
    path("groups/", groups.group_list, name="group-list"),
    path("groups/<str:handle>/", groups.group_show, name="group-show"),
    path("groups/<str:handle>/cancel/", groups.group_cancel, name="group-cancel"),
    path("agents/", agents.agent_list, name="agent-list"),
    path("tokens/", agents.token_new, name="token-new"),
    path("tokens/<str:handle>/revoke/", agents.token_revoke, name="token-revoke"),
    path("subscriptions/", subscriptions.subscription_new, name="subscription-new"),
    path("subscriptions/<str:handle>/", subscriptions.subscription_show, name="subscription-show"),
    path("subscriptions/<str:handle>/edit/", subscriptions.subscription_edit, name="subscription-edit"),
    path("subscriptions/<str:handle>/switch/", subscriptions.subscription_switch, name="subscription-switch"),
    path("subscriptions/<str:handle>/rotate/", subscriptions.subscription_rotate, name="subscription-rotate"),
    path("subscriptions/<str:handle>/test/", subscriptions.subscription_test, name="subscription-test"),
    path("subscriptions/<str:handle>/replay/", subscriptions.subscription_replay, name="subscription-replay"),
    path("subscriptions/<str:handle>/remove/", subscriptions.subscription_remove, name="subscription-remove"),
    path("events/", events.event_list, name="event-list"),
    path("events/verify/", events.event_verify, name="event-verify"),
    path("events/<str:handle>/", events.event_show, name="event-show"),
    path("account/", account.account_show, name="account-show"),
    path("account/password/", account.password_change, name="account-password"),
    path("account/zone/", account.zone_change, name="account-zone"),
    path("sign-in/", account.SignIn.as_view(), name="sign-in"),
    path("sign-out/", account.SignOut.as_view(), name="sign-out"),
]
