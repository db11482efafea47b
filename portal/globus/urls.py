"""The addresses of delegated access."""

from django.urls import path

from portal.globus import views

app_name = "globus"
urlpatterns = [
    path("connections/", views.connection_list, name="connection-list"),
    path("connections/globus/connect/", views.connect_start, name="connect"),
    path("connections/globus/callback/", views.callback, name="callback"),
    path("connections/globus/disconnect/", views.disconnect, name="disconnect"),
    path("sign-in/globus/", views.sign_in_start, name="sign-in"),
]
