"""Django's settings, built from `portal.env`; nothing here reads the environment or decides by host name."""

import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured
from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

from portal import env as environment
from portal.embedded import address
from portal.logging import logging_config
from portal.secret_key import kept_key

ROOT = environment.ROOT
try:
    ENV = environment.load()
except environment.BadEnvironment as error:
    sys.exit(f"facet: {error}")

# Who we are.
DATA_DIR: Path = ENV.data_dir
DEBUG = ENV.debug
TESTING = ENV.testing
PUBLIC_URL = ENV.public_url.rstrip("/") or f"http://{ENV.host}:{ENV.port}"
ALLOWED_HOSTS = sorted(
    {urlsplit(PUBLIC_URL).hostname or "localhost", *ENV.allowed_hosts}
    | (set() if ENV.production else {"localhost", "127.0.0.1", "[::1]"})
)
CSRF_TRUSTED_ORIGINS = [PUBLIC_URL]
SECRET_KEY = ENV.secret_key.get_secret_value() if ENV.secret_key else kept_key(DATA_DIR)
SECRET_KEY_FALLBACKS = (
    [key.strip() for key in ENV.secret_key_fallbacks.get_secret_value().split(",") if key.strip()]
    if ENV.secret_key_fallbacks
    else []
)
FACET_PROFILES: Path | None = ENV.profiles
_MILESTONES = ENV.milestones if ENV.milestones is not None else bool(ENV.public_url) or ENV.profiles is None
MILESTONE_URL = f"{PUBLIC_URL}/api/v1/milestones" if _MILESTONES else ""
"""Where jobs report milestones; empty: they are not told, since their nodes would not reach us."""

INSTALLED_APPS = [
    "unfold",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.postgres",
    "django.contrib.staticfiles",
    "pgtrigger",
    "rest_framework",
    "drf_spectacular_sidecar",
    "django_htmx",
    "template_partials",
    "portal.apps.PortalConfig",
    "portal.web.apps.WebConfig",
    "orchestrator.apps.OrchestratorConfig",
    "federation.apps.FederationConfig",
]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
ROOT_URLCONF = "portal.urls"
ASGI_APPLICATION = "portal.asgi.application"

# Each is async-capable: a synchronous one would put a thread between every request and its async view.
MIDDLEWARE = [
    "portal.request_log.watched",
    "django.middleware.security.SecurityMiddleware",
    "portal.middleware.StaticFiles",
    "portal.middleware.content_security_policy",
    "portal.middleware.WithoutDatabase",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "portal.middleware.without_nul",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [ROOT / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
            "builtins": ["template_partials.templatetags.partials"],
        },
    }
]

# Where state lives.
_ENGINE = address.read(DATA_DIR) or address.nowhere(DATA_DIR)


def _database(url: str) -> dict[str, Any]:
    """Return Django's entry for a libpq URL; further parameters (sslmode, …) become connection options."""
    try:
        given = conninfo_to_dict(url)
    except ProgrammingError as error:
        raise ImproperlyConfigured(f"DATABASE_URL is not a libpq URL: {error}") from None
    names = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}
    entry: dict[str, Any] = {key: str(given.pop(name, "") or "") for key, name in names.items()}
    # A server that falls silent is given up within 15 s instead of the kernel's quarter of an hour.
    silent = {"tcp_user_timeout": 15_000, "keepalives_idle": 10, "keepalives_interval": 5}
    options: dict[str, Any] = {"connect_timeout": 5, **silent, "keepalives_count": 2, **given}
    if ENV.database_pool:
        # Under ASGI each request has its own thread, so connections kept per thread would pile up: pool them.
        # A failed connection is tried again for 3 s, then by whoever asks next: once the server is back, so
        # is the pool, where its own patience (minutes, doubling pauses) would keep callers out.
        patience = {"timeout": 10, "reconnect_timeout": 3}
        options["pool"] = {"min_size": 1, "max_size": ENV.database_pool, **patience}
    return {
        **entry,
        "ENGINE": "django.db.backends.postgresql",
        "ATOMIC_REQUESTS": False,
        "CONN_MAX_AGE": 0 if ENV.database_pool or TESTING else 60,
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": options,
    }


def _broker(url: str) -> str:
    """Return kombu's spelling of a Redis URL: it names unix sockets differently from redis-py."""
    parts = urlsplit(url)
    if parts.scheme != "unix":
        return url
    number = dict(pair.partition("=")[::2] for pair in parts.query.split("&")).get("db", "0")
    return f"redis+socket://{unquote(parts.path)}?virtual_host={number}"


DATABASE_URL = ENV.database_url.get_secret_value() if ENV.database_url else _ENGINE.database_url
REDIS_URL = ENV.redis_url.get_secret_value() if ENV.redis_url else _ENGINE.redis_url
DATABASES = {"default": _database(DATABASE_URL)}

# The queue: see docs on why PostgreSQL is the truth and this only a doorbell.
CELERY_BROKER_URL = _broker(REDIS_URL)
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_TASK_SOFT_TIME_LIMIT = 45
CELERY_TASK_TIME_LIMIT = 60
CELERY_TASK_DEFAULT_QUEUE = "default"
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_CANCEL_LONG_RUNNING_TASKS_ON_CONNECTION_LOSS = True
CELERY_WORKER_SOFT_SHUTDOWN_TIMEOUT = 5.0
CELERY_WORKER_MAX_TASKS_PER_CHILD = 500
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "visibility_timeout": 300,  # above the hard time limit, or a slow chore runs twice at once
    "unacked_restore_interval": 5,
    "unacked_restore_throttle": 1,
    "socket_keepalive": True,
    "queue_order_strategy": "round_robin",  # a full queue does not keep the others' messages waiting
}
CELERY_TIMEZONE = "UTC"

# People and browsers.
AUTHENTICATION_BACKENDS = ["portal.sign_in.LimitedModelBackend"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("UserAttributeSimilarityValidator", "MinimumLengthValidator", "CommonPasswordValidator")
]
if TESTING:
    PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
SESSION_ENGINE = "django.contrib.sessions.backends.db"
SESSION_COOKIE_NAME = f"facet_session_{ENV.port}"  # copies side by side on one host must not share a cookie
CSRF_COOKIE_NAME = f"facet_csrf_{ENV.port}"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
X_FRAME_OPTIONS = "DENY"
SECURE_REFERRER_POLICY = "same-origin"
LOGIN_URL = "/sign-in/"
LOGIN_REDIRECT_URL = "/"
if ENV.production:
    SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = True
    SECURE_HSTS_SECONDS = 31_536_000
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    SECURE_SSL_REDIRECT = True
    SECURE_REDIRECT_EXEMPT = ["^healthz$", "^readyz$", "^metrics$"]  # asked from beside us, without the proxy
# What HSTS promises for other names under the same domain is for their owners to say (a proxy can).
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021"]

USE_TZ = True
TIME_ZONE = "UTC"
USE_I18N = True
LANGUAGE_CODE = "en"
LOCALE_PATHS = [ROOT / "locale"]
LANGUAGES = [
    ("en", "English"),
    *((path.parents[1].name,) * 2 for path in sorted((ROOT / "locale").glob("*/LC_MESSAGES/django.mo"))),
]
"""English, and every language whose compiled catalogue lies in locale/."""
if len(LANGUAGES) > 1:
    _AFTER = MIDDLEWARE.index("django.contrib.sessions.middleware.SessionMiddleware") + 1
    MIDDLEWARE.insert(_AFTER, "django.middleware.locale.LocaleMiddleware")

STATIC_URL = "/static/"
STATIC_ROOT = ROOT / "staticfiles" if ENV.production else None  # else: served in place
STATICFILES_DIRS = [folder for folder in (ROOT / "static",) if folder.is_dir()]
WHITENOISE_USE_FINDERS = not ENV.production
WHITENOISE_AUTOREFRESH = not ENV.production  # served in place, a file may change under a running process
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"
        if ENV.production
        else "django.contrib.staticfiles.storage.StaticFilesStorage"
    },
}

# Globus: the registered application, and where the services are ("" = the hosted ones).
GLOBUS_CLIENT_ID, GLOBUS_CLIENT_SECRET = ENV.globus_client_id, ENV.globus_client_secret
GLOBUS_SIGN_UP = ENV.globus_sign_up
GLOBUS_AUTH_URL, GLOBUS_COMPUTE_URL = ENV.globus_auth_url.rstrip("/"), ENV.globus_compute_url.rstrip("/")
GLOBUS_TRANSFER_URL = ENV.globus_transfer_url.rstrip("/")
GLOBUS_REQUESTS_PER_10S, GLOBUS_FIRST_POLL_MS = ENV.globus_requests_per_10s, ENV.globus_first_poll_ms
LOCAL_ROOTS = tuple(root.rstrip("/") for root in ENV.local_roots)
# Telling people and programs.
WEBHOOK_ALLOW = ENV.webhook_allow
_MAIL = urlsplit(ENV.email_url.get_secret_value() if ENV.email_url else "")
EMAIL_BACKEND = f"django.core.mail.backends.{'smtp' if _MAIL.scheme else 'console'}.EmailBackend"
EMAIL_HOST, EMAIL_PORT = (
    _MAIL.hostname or "localhost",
    _MAIL.port or (465 if _MAIL.scheme == "smtps" else 587),
)
EMAIL_HOST_USER, EMAIL_HOST_PASSWORD = unquote(_MAIL.username or ""), unquote(_MAIL.password or "")
EMAIL_USE_TLS, EMAIL_USE_SSL = _MAIL.scheme == "smtp+tls", _MAIL.scheme == "smtps"
EMAIL_TIMEOUT = 10
DEFAULT_FROM_EMAIL = ENV.email_from

# The model that drafts; see portal.drafting.
LLM_BASE_URL, LLM_MODEL, LLM_TIMEOUT_S = ENV.llm_base_url, ENV.llm_model, ENV.llm_timeout_s
KEEP_SNAPSHOTS_DAYS, KEEP_SAMPLES_DAYS = ENV.keep_snapshots_days, ENV.keep_samples_days
KEEP_EVENTS_DAYS = ENV.keep_events_days
ARCHIVE_DIR = ENV.archive_dir or ENV.data_dir / "archive"
LLM_API_KEY, LLM_TOKENS_PER_DAY = ENV.llm_api_key, ENV.llm_tokens_per_day

RATE_PER_MINUTE, RATE_BURST = ENV.rate_per_minute, ENV.rate_burst
METRICS_TOKEN = ENV.metrics_token.get_secret_value() if ENV.metrics_token else ""

REST_FRAMEWORK: dict[str, Any] = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "portal.api.authentication.ByToken",
        "portal.api.authentication.BySession",
    ],
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "portal.api.parsing.AlwaysJson",
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": [],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_METADATA_CLASS": None,
    "EXCEPTION_HANDLER": "portal.api.problems.answer_exception",
    "UNAUTHENTICATED_USER": None,
    "URL_FORMAT_OVERRIDE": None,
}
UNFOLD = {
    "SITE_TITLE": "Facet",
    "SITE_HEADER": "Facet",
    "SITE_SUBHEADER": "Administration",
    "SITE_URL": "/",
    "SITE_ICON": "portal.admin_menu.mark",
    "SITE_FAVICONS": [{"rel": "icon", "type": "image/svg+xml", "href": "portal.admin_menu.mark"}],
    "STYLES": ["portal.admin_menu.style"],
    "SCRIPTS": ["portal.admin_menu.script"],
    "SIDEBAR": {"navigation": "portal.admin_menu.menu"},
    # The accent of the portal (static/css/tokens.css) at 600, and its hue at the theme's other steps.
    "COLORS": {
        "primary": {
            step: f"oklch({lightness}% {chroma} 283)"
            for step, lightness, chroma in (
                ("50", 97, 0.015),
                ("100", 94.3, 0.03),
                ("200", 88.6, 0.06),
                ("300", 80.5, 0.11),
                ("400", 71, 0.17),
                ("500", 61, 0.22),
                ("600", 46, 0.205),
                ("700", 41, 0.19),
                ("800", 36, 0.165),
                ("900", 32, 0.13),
                ("950", 25, 0.09),
            )
        }
    },
}

LOGGING_CONFIG = "logging.config.dictConfig"
LOGGING = logging_config(level=ENV.log_level, form=ENV.log_format)
