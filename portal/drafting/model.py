"""Asking the model: bounded in time and tokens, its errors fed back once, and never more than a proposal."""

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from django.conf import settings

from portal.drafting.proposal import correction, messages, read_answer, schema
from providers.errors import InvalidInput

if TYPE_CHECKING:
    from openai import OpenAI

ANSWER_TOKENS = 1500
_LEAST_S = 0.5


@dataclass(slots=True)
class Use:
    """What a draft cost, as it is kept with the envelope."""

    model: str
    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    ms: int = 0
    outcome: str = "proposed"
    """proposed, or why there is no proposal."""

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {**asdict(self), "tokens": self.tokens}

    @property
    def tokens(self) -> int:
        """Return every token."""
        return self.prompt_tokens + self.completion_tokens


def is_configured() -> bool:
    """Return whether there is a model to ask."""
    return bool(settings.LLM_BASE_URL)


def propose(material: Mapping[str, str], known: Mapping[str, Any]) -> tuple[dict[str, Any] | None, Use]:
    """Return a valid proposal and what it cost; None where the model gave none, `outcome` says why."""
    from openai import APIError, APITimeoutError  # noqa: PLC0415  # tens of megabytes that few need

    use = Use(model=settings.LLM_MODEL)
    began = time.monotonic()
    talk = messages(material=material, known=known)
    proposal: dict[str, Any] | None = None
    try:
        with _client() as client:
            proposal = _asked(client, talk, use, until=began + settings.LLM_TIMEOUT_S)
    except APITimeoutError:
        use.outcome = "it did not answer in time"
    except APIError as error:
        use.outcome = f"it failed ({type(error).__name__})"
    except InvalidInput as error:
        use.outcome = f"its answers were not valid: {error.message}"[:200]
    use.ms = round((time.monotonic() - began) * 1000)
    return proposal, use


def _client() -> "OpenAI":
    from openai import OpenAI  # noqa: PLC0415  # as above

    key = settings.LLM_API_KEY.get_secret_value() if settings.LLM_API_KEY else "none"
    return OpenAI(base_url=settings.LLM_BASE_URL, api_key=key, max_retries=0, timeout=settings.LLM_TIMEOUT_S)


def _asked(client: "OpenAI", talk: list[dict[str, Any]], use: Use, *, until: float) -> dict[str, Any]:
    """Ask, and once more with the faults of an answer that is not valid."""
    answer = _ask(client, talk, use, until=until)
    try:
        return read_answer(answer)
    except InvalidInput as error:
        talk = [*talk, *correction(answer or "", error.problems)]
        return read_answer(_ask(client, talk, use, until=until))


def _ask(client: "OpenAI", talk: list[dict[str, Any]], use: Use, *, until: float) -> str | None:
    """Ask in the structured form; servers that do not know it are asked for plain JSON."""
    from openai import BadRequestError  # noqa: PLC0415  # as above

    structured = {
        "response_format": {"type": "json_schema", "json_schema": {"name": "envelope", "schema": schema()}},
        "max_tokens": ANSWER_TOKENS,
    }
    try:
        return _complete(client, talk, use, structured, until=until)
    except BadRequestError:
        plain = {"response_format": {"type": "json_object"}, "max_completion_tokens": ANSWER_TOKENS}
        return _complete(client, talk, use, plain, until=until)


def _complete(
    client: "OpenAI", talk: list[dict[str, Any]], use: Use, form: dict[str, Any], *, until: float
) -> str | None:
    use.calls += 1
    left_s = max(_LEAST_S, until - time.monotonic())
    create: Any = client.chat.completions.create  # its overloads do not take options as a mapping
    try:
        done = create(model=settings.LLM_MODEL, messages=talk, temperature=0, timeout=left_s, **form)
    except ValueError:  # the client lets the decoder's own error through
        raise InvalidInput("what its server sent is not JSON") from None
    spent = getattr(done, "usage", None)
    use.prompt_tokens += _count(getattr(spent, "prompt_tokens", 0))
    use.completion_tokens += _count(getattr(spent, "completion_tokens", 0))
    choices = getattr(done, "choices", None)
    message = getattr(choices[0], "message", None) if isinstance(choices, list) and choices else None
    content = getattr(message, "content", None)
    return content if isinstance(content, str) else None


def _count(value: object) -> int:
    """Return a number of tokens as the server says it; the client does not check what it is."""
    return value if isinstance(value, int) and value > 0 else 0
