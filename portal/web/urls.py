"""The pages' addresses; each mirrors the API's path of the same thing."""

from django.urls import path

from portal.web import account, events, federation, find, groups, submission, task_list, tasks, where

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
    path("events/", events.event_list, name="event-list"),
    path("sign-in/", account.SignIn.as_view(), name="sign-in"),
    path("sign-out/", account.SignOut.as_view(), name="sign-out"),
]
