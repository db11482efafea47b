"""Making text that a job or a person wrote safe to keep and to show: one line, no secrets. Pure."""

import re
import unicodedata

JOB_TOKEN_PREFIX = "fjt_"  # noqa: S105  # how one begins, not one
JOB_TOKEN = re.compile(r"fjt_[A-Za-z0-9_:.=-]{6,}")
_GONE = "[redacted]"
_SECRETS = (
    JOB_TOKEN,
    re.compile(r"\b(?:facet_|gh[opsu]_|github_pat_|glpat-|hf_|sk-|xox[abpr]-|AKIA|eyJ)[A-Za-z0-9_.\-]{12,}"),
    re.compile(r"(?i)(?<=://)[^/\s:@]{1,100}:[^/\s@]{1,200}(?=@)"),
)
_NAMED = re.compile(
    r"(?i)((?:(?:password|passwd|passphrase|secret|token|(?:api|access|private)[_-]?key|authorization|credential)s?"
    r"[\"']?\s*[=:]|(?<![a-z])pass=)\s*"
    r"(?:bearer\s+|basic\s+)?)(?:\"[^\"]*\"|'[^']*'|\S+)"
)


def cleaned(text: str) -> str:
    """Return text on one line, without control and formatting characters (terminal codes, bidi marks)."""
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    kept = (" " if char.isspace() else char for char in text)
    return " ".join("".join(c for c in kept if unicodedata.category(c)[0] != "C").split())


def one_line(text: str) -> str:
    """Return text that is one line already.

    Raises:
        ValueError: it holds control characters.
    """
    if any(ord(char) < 32 or ord(char) == 127 for char in text):
        raise ValueError("must be one line without control characters")
    return text


def redacted(text: str) -> str:
    """Return text without what looks like a secret."""
    for pattern in _SECRETS:
        text = pattern.sub(_GONE, text)
    return _NAMED.sub(rf"\1{_GONE}", text)


def without_job_tokens(text: str) -> str:
    """Return output with every job token masked, as long as before: byte offsets stay true."""
    return JOB_TOKEN.sub(lambda match: "*" * len(match[0]), text)
