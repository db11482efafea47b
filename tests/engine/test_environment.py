"""What the environment may say, and how a bad variable is refused."""

import os
from pathlib import Path

import pytest

from portal import env as environment

SECRET = "a-secret-key-of-more-than-thirty-two-characters"


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = {environment.variable_of(name) for name in environment.Env.model_fields}
    for name in list(os.environ):
        if name in ours or name.startswith("FACET_"):
            monkeypatch.delenv(name)


def refusal() -> str:
    with pytest.raises(environment.BadEnvironment) as caught:
        environment.load()
    return str(caught.value)


def test_an_empty_environment_gives_the_defaults_of_the_contract() -> None:
    env = environment.load()

    assert (env.port, env.data_dir) == (8000, environment.ROOT / ".facet")
    assert (env.database_url, env.redis_url, env.profiles) == (None, None, None)


def test_what_only_the_command_line_reads_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FACET_URL", "FACET_TOKEN", "FACET_SESSION", "FACET_WAKE", "FACET_ALLOW_HTTP"):
        monkeypatch.setenv(name, "x")

    assert environment.load().port == 8000


def test_an_unknown_variable_is_refused_with_the_nearest_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FACET_SECRETKEY", "x")

    assert refusal() == "FACET_SECRETKEY: no such variable; did you mean FACET_SECRET_KEY?"


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("PORT", "80a", "PORT: Input should be a valid integer, unable to parse string as an integer."),
        ("PORT", "70000", "PORT: Input should be less than or equal to 65535."),
        ("FACET_LOG_FORMAT", "xml", "FACET_LOG_FORMAT: Input should be 'console' or 'json'."),
        (
            "FACET_SECRET_KEY",
            "short",
            "FACET_SECRET_KEY: Value should have at least 32 items after validation, not 5.",
        ),
        ("DATABASE_URL", "mysql://x", "DATABASE_URL: must read postgresql://… or postgres://…."),
        ("REDIS_URL", "localhost:6379", "REDIS_URL: must read redis://… or rediss://… or unix://…."),
        ("FACET_PROFILES", "/no/such/folder", "FACET_PROFILES: /no/such/folder is not a folder."),
    ],
)
def test_a_bad_variable_is_named_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, name: str, content: str, sentence: str
) -> None:
    monkeypatch.setenv(name, content)

    assert refusal() == sentence


def test_a_refused_secret_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "mysql://user:hunter2@host/db")

    assert "hunter2" not in refusal()


def test_production_needs_a_key_and_refuses_debug(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FACET_PRODUCTION", "true")
    monkeypatch.setenv("FACET_DEBUG", "true")

    assert refusal().splitlines() == [
        "FACET_DEBUG: refused in production; unset it or FACET_PRODUCTION.",
        "FACET_SECRET_KEY: production needs one; give it or FACET_SECRET_KEY_FILE.",
    ]


def test_a_secret_may_come_from_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for variable, content in (("FACET_SECRET_KEY", SECRET), ("DATABASE_URL", "postgresql://h/d")):
        (tmp_path / variable).write_text(f"{content}\n")
        monkeypatch.setenv(f"{variable}_FILE", str(tmp_path / variable))

    env = environment.load()

    assert env.secret_key is not None
    assert env.secret_key.get_secret_value() == SECRET
    assert env.database_url is not None
    assert env.database_url.get_secret_value() == "postgresql://h/d"
    assert SECRET not in repr(env)


def test_a_secret_file_that_cannot_be_read_stops_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL_FILE", "/no/such/file")

    assert refusal().startswith("REDIS_URL_FILE: /no/such/file cannot be read: ")


def test_only_secrets_may_come_from_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FACET_HOST_FILE", "/etc/hostname")

    assert refusal() == "FACET_HOST_FILE: no such variable; did you mean FACET_HOST?"


def test_lists_are_comma_separated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FACET_ALLOWED_HOSTS", "facet.example.org, login.example.org,")

    assert environment.load().allowed_hosts == ("facet.example.org", "login.example.org")


def test_the_example_file_documents_every_variable() -> None:
    assert (environment.ROOT / ".env.example").read_text() == environment.example()
