"""Every environment variable Facet reads, typed; a bad one stops the start with a sentence that names it.

No other module reads the environment. A secret may come from a file:
`FACET_SECRET_KEY_FILE=/run/secrets/key`.
"""

import difflib
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AliasChoices, BeforeValidator, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

ROOT = Path(__file__).resolve().parent.parent
PREFIX = "FACET_"
OF_THE_COMMAND_LINE = {"FACET_URL", "FACET_TOKEN", "FACET_SESSION", "FACET_WAKE", "FACET_ALLOW_HTTP"}
"""Read by `facet`, not by us; somebody who runs both has them set."""


class BadEnvironment(ValueError):
    """A variable is missing, unknown or wrong; the message is one sentence per variable."""


def _words(given: object) -> object:
    """Split a comma-separated list as people write it in a shell."""
    return (
        tuple(word.strip() for word in given.split(",") if word.strip()) if isinstance(given, str) else given
    )


def _absolute(path: Path) -> Path:
    return path.expanduser().absolute()


Words = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_words)]
AbsolutePath = Annotated[Path, AfterValidator(_absolute)]


class _SecretFiles(PydanticBaseSettingsSource):
    """Read `X_FILE` for each secret X that the environment does not hold itself."""

    def get_field_value(self, field: object, field_name: str) -> tuple[Any, str, bool]:
        """Answer nothing field by field: this source is read as a whole."""
        del field
        return None, field_name, False

    def __call__(self) -> dict[str, Any]:
        """Return the secrets found, by variable or field name.

        Raises:
            BadEnvironment: a named file cannot be read.
        """
        found: dict[str, Any] = {}
        for variable in secret_variables():
            path = os.environ.get(f"{variable}_FILE", "")
            if not path or os.environ.get(variable):
                continue
            try:
                found[field_of(variable)] = Path(path).read_text().strip()
            except (OSError, UnicodeDecodeError) as error:
                raise BadEnvironment(f"{variable}_FILE: {path} cannot be read: {error}.") from error
        return found


class Env(BaseSettings):
    """What the environment says; every field's description is its documentation."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_ignore_empty=True, extra="forbid", frozen=True, hide_input_in_errors=True
    )

    port: int = Field(8000, ge=1, le=65535, validation_alias="PORT", description="TCP port of web and API")
    data_dir: AbsolutePath = Field(
        ROOT / ".facet",
        validation_alias="DATA_DIR",
        description="folder of all state: database, queue, keys, logs",
    )
    database_url: SecretStr | None = Field(
        None, validation_alias="DATABASE_URL", description="postgresql://…; unset: the embedded server"
    )
    redis_url: SecretStr | None = Field(
        None,
        validation_alias="REDIS_URL",
        description="redis://…, rediss://… or unix://…; unset: the embedded server",
    )
    profiles: AbsolutePath | None = Field(
        None, description="folder of site profiles (YAML) loaded instead of the demo federation"
    )
    host: str = Field("127.0.0.1", description="address web and API listen on")
    public_url: str = Field("", description="the URL people use, when it is not http://HOST:PORT")
    milestones: bool | None = Field(
        None,
        description="give each job a token to report milestones at the public URL; unset: where "
        "FACET_PUBLIC_URL is set, and in the demo",
    )
    allowed_hosts: Words = Field((), description="host names answered besides PUBLIC_URL's, comma-separated")
    production: bool = Field(
        default=False, description="HTTPS-only cookies, no debug, a SECRET_KEY must be given"
    )
    debug: bool = Field(default=False, description="Django's debug pages; refused in production")
    testing: bool = Field(default=False, description="set by the test suite: a fast password hasher")
    secret_key: SecretStr | None = Field(
        None, min_length=32, description="signs sessions, encrypts tokens; unset: made once, kept in DATA_DIR"
    )
    secret_key_fallbacks: SecretStr | None = Field(
        None, description="earlier secret keys, comma-separated, while a key is being rotated"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="least level logged")
    log_format: Literal["console", "json"] = Field(
        "console", description="for people, or one JSON object a line"
    )
    database_pool: int = Field(
        0,
        ge=0,
        le=100,
        description="connections pooled in one process (web); 0: one per thread, kept 60 s (workers)",
    )
    postgres_port: int | None = Field(
        None,
        ge=1024,
        le=65535,
        description="loopback TCP port of the embedded PostgreSQL; unset: unix socket only",
    )
    root_mode: Literal["", "userns", "setuid"] = Field(
        "", description="how root runs PostgreSQL: in a user namespace or as nobody; unset: whichever works"
    )
    web_threads: int = Field(
        16, ge=1, le=100, description="database connections of the web process under `run.py`"
    )
    rate_per_minute: int = Field(
        600, ge=0, description="API requests a minute of one user, on average; 0: not limited"
    )
    rate_burst: int = Field(120, ge=1, description="API requests of one user that may come at once")
    globus_client_id: str = Field(
        "",
        description="id of the confidential application registered at Globus; unset: Globus is not offered",
    )
    globus_client_secret: SecretStr | None = Field(None, description="secret of that application")
    globus_sign_up: bool = Field(
        default=False, description="make an account at the first sign-in with Globus; else only known people"
    )
    globus_auth_url: str = Field("", description="Globus Auth; unset: the hosted service")
    globus_compute_url: str = Field("", description="Globus Compute; unset: the hosted service")
    globus_transfer_url: str = Field("", description="Globus Transfer; unset: the hosted service")
    globus_requests_per_10s: int = Field(
        18, ge=1, description="requests to Globus Compute per user in 10 s; the hosted service takes 20"
    )
    globus_first_poll_ms: int = Field(
        300, ge=1, description="pause before a task's state is first asked for; doubled each time"
    )
    local_roots: Words = Field(
        (),
        description="folders of this machine that people may move files in (file://), comma-separated; "
        "{user} stands for each person's own name; unset: none",
    )
    webhook_allow: Words = Field(
        (),
        description="webhook receivers allowed besides public HTTPS ones, comma-separated: host, host:port, "
        "address or network (10.0.0.0/8)",
    )
    email_url: SecretStr | None = Field(
        None,
        description="smtp://USER:PASSWORD@HOST:PORT, smtp+tls:// (STARTTLS) or smtps://; unset: logged",
    )
    email_from: str = Field("Facet <facet@localhost>", description="whom e-mails come from")
    llm_base_url: str = Field(
        "", description="OpenAI-compatible endpoint that drafts envelopes (…/v1); empty: rules alone"
    )
    llm_model: str = Field("", description="name of the model at FACET_LLM_BASE_URL")
    llm_api_key: SecretStr | None = Field(None, description="key for FACET_LLM_BASE_URL, where it wants one")
    llm_timeout_s: float = Field(20, gt=0, le=40, description="how long one draft may take the model, s")
    llm_tokens_per_day: int = Field(
        200_000, ge=0, description="tokens one user's drafts may take of the model in a day; 0: not limited"
    )
    keep_snapshots_days: int = Field(
        2, ge=1, le=3650, description="days that what probes saw is kept; the newest of each system always is"
    )
    keep_samples_days: int = Field(30, ge=1, le=3650, description="days that samples for charts are kept")
    keep_events_days: int = Field(
        0, ge=0, le=36_500, description="days after which events move into archive files; 0: they never do"
    )
    archive_dir: AbsolutePath | None = Field(
        None, description="folder of the archives of events; unset: archive/ in DATA_DIR"
    )
    metrics_token: SecretStr | None = Field(
        None,
        min_length=16,
        description="bearer token that GET /metrics (Prometheus) asks for; unset: not served",
    )
    control_workers: int = Field(2, ge=1, le=32, description="processes of the control queue under `run.py`")
    default_workers: int = Field(2, ge=1, le=64, description="processes of the default queue under `run.py`")
    engine: AbsolutePath | None = Field(
        None, description="set for every process that `run.py` starts: the DATA_DIR it belongs to"
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read the environment, then the `*_FILE` variables; no dotenv file: nothing is read unseen."""
        del dotenv_settings, file_secret_settings
        return init_settings, env_settings, _SecretFiles(settings_cls)


def variable_of(field_name: str) -> str:
    """Return the environment variable of a field."""
    alias = Env.model_fields[field_name].validation_alias
    if isinstance(alias, AliasChoices):
        raise TypeError(f"{field_name} must have one name")
    return str(alias) if alias else f"{PREFIX}{field_name.upper()}"


def field_of(variable: str) -> str:
    """Return what a settings source calls the field of a variable: its alias if it has one."""
    return variable if not variable.startswith(PREFIX) else variable.removeprefix(PREFIX).lower()


@cache
def secret_variables() -> tuple[str, ...]:
    """Return the variables that hold secrets and so may also be given as `X_FILE`."""
    return tuple(
        variable_of(name) for name, field in Env.model_fields.items() if "SecretStr" in str(field.annotation)
    )


def _known() -> set[str]:
    names = {variable_of(name) for name in Env.model_fields}
    return names | OF_THE_COMMAND_LINE | {f"{variable}_FILE" for variable in secret_variables()}


def _unread(environ: Mapping[str, str]) -> list[str]:
    known = _known()
    sentences = []
    for name in sorted(environ):
        if name.startswith(PREFIX) and name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            sentences.append(f"{name}: no such variable" + (f"; did you mean {near[0]}?" if near else "."))
    return sentences


def load() -> Env:
    """Return the environment, checked.

    Raises:
        BadEnvironment: a variable is unknown, malformed or contradicts another.
    """
    sentences = _unread(os.environ)
    try:
        env = Env()
    except ValidationError as error:
        for line in error.errors(include_url=False, include_input=False):
            field = str(line["loc"][0]) if line["loc"] else ""
            name = variable_of(field) if field in Env.model_fields else field
            sentences.append(f"{name}: {line['msg']}.")
        raise BadEnvironment("\n".join(sentences)) from None
    sentences += [*_contradictions(env), *_bad_roots(env.local_roots)]
    if sentences:
        raise BadEnvironment("\n".join(sentences))
    return env


def _contradictions(env: Env) -> list[str]:
    sentences = []
    if env.production and env.debug:
        sentences.append("FACET_DEBUG: refused in production; unset it or FACET_PRODUCTION.")
    if env.production and env.secret_key is None:
        sentences.append("FACET_SECRET_KEY: production needs one; give it or FACET_SECRET_KEY_FILE.")
    if bool(env.globus_client_id) != (env.globus_client_secret is not None):
        sentences.append("FACET_GLOBUS_CLIENT_ID and FACET_GLOBUS_CLIENT_SECRET: give both or neither.")
    if env.llm_base_url and not env.llm_model:
        sentences.append("FACET_LLM_MODEL: FACET_LLM_BASE_URL needs the name of a model.")
    if env.llm_base_url and not env.llm_base_url.startswith(("http://", "https://")):
        sentences.append("FACET_LLM_BASE_URL: must read http(s)://….")
    if env.profiles is not None and not env.profiles.is_dir():
        sentences.append(f"FACET_PROFILES: {env.profiles} is not a folder.")
    for field, schemes in (
        ("database_url", ("postgresql", "postgres")),
        ("redis_url", ("redis", "rediss", "unix")),
        ("email_url", ("smtp", "smtp+tls", "smtps")),
    ):
        secret: SecretStr | None = getattr(env, field)
        if secret is not None and secret.get_secret_value().partition("://")[0] not in schemes:
            wanted = " or ".join(f"{scheme}://…" for scheme in schemes)
            sentences.append(f"{variable_of(field)}: must read {wanted}.")
    return sentences


def _bad_roots(roots: tuple[str, ...]) -> list[str]:
    return [
        f"FACET_LOCAL_ROOTS: {root} must be an absolute path without `..`."
        for root in roots
        if not root.startswith("/") or ".." in root.split("/")
    ]


def example() -> str:
    """Return `.env.example`: every variable with what it means and its default, commented out."""
    lines = [
        "# Every variable Facet reads, with its default. A secret X may instead be a file named by X_FILE."
    ]
    for name, described in Env.model_fields.items():
        default = described.default
        shown = "" if default is None or default == () else str(default)
        if isinstance(default, Path):
            shown = str(default.relative_to(ROOT))
        lines += ["", f"# {described.description}", f"#{variable_of(name)}={shown}"]
    return "\n".join(lines) + "\n"


def outside(**changes: str) -> dict[str, str]:
    """Return a copy of the whole environment with changes, for a program that is about to be started."""
    return {**os.environ, **changes}
