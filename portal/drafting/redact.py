"""Taking out of a text what no model may see: credentials, addresses, people's names and places. Pure.

It errs on the side of taking too much: a draft needs counts, packages and sizes, never a path or a key.
Repetitions that could start anywhere are bounded, so that no text takes long.
"""

import math
import re
from collections.abc import Callable, Collection
from itertools import islice

SECRET, MAIL, PLACE, PERSON, NUMBER = "[secret]", "[e-mail]", "[path]", "[user]", "[address]"

_VALUE = r"(\"[^\"\n]{0,500}\"|'[^'\n]{0,500}'|[^\s,;)}\]]+)"
_PASS = re.compile(r"((?<![a-z])pass\s{0,8}=\s{0,8})" + _VALUE, re.IGNORECASE)
_BLOCK = re.compile(r"-----BEGIN [A-Z0-9 ]+-----.*?(?:-----END [A-Z0-9 ]+-----|\Z)", re.DOTALL)
_KNOWN = re.compile(
    r"\b(?:"
    r"facet_[\w-]{8,}|whsec_[\w+/=-]{8,}|gh[opsur]_\w{16,}|github_pat_\w{16,}|glpat-[\w-]{12,}|sk-[\w-]{12,}"
    r"|xox[abeoprs]-[\w-]{8,}|hf_\w{16,}|npm_\w{16,}|pypi-[\w-]{16,}|dckr_pat_[\w-]{12,}|AIza[\w-]{20,}"
    r"|A[KS]IA[A-Z0-9]{12,}|ya29\.[\w.-]{12,}|eyJ[\w-]{6,}\.[\w-]{6,}(?:\.[\w-]*)?|AGE-SECRET-KEY-\w+"
    r")"
)
_AUTHORIZATION = re.compile(r"\b(bearer|basic|digest|negotiate)\s+[\w.~+/=:-]{6,}", re.IGNORECASE)
_IN_URL = re.compile(r"(?<=://)[^\s/@'\"]{1,300}@")
_QUERY = re.compile(r"(?<=[?&])([\w.-]{0,40}(?:key|token|sig|secret|code)\w{0,20})=[^&\s'\"]+", re.IGNORECASE)
_NAMED = re.compile(
    r"((?:passwo?r?d|passwd|pwd|passphrase|secret|token|credential|api[_-]?key|access[_-]?key"
    r"|private[_-]?key|account[_-]?key|auth|cookie|session[_-]?id|netrc)[\w.-]{0,40}"
    r"[\"']?\s{0,8}(?::=|=>|=|:|\s)\s{0,8})" + _VALUE,
    re.IGNORECASE,
)
_MAIL = re.compile(r"[\w.+%-]{1,64}@[\w.-]{1,255}")
_ADDRESS = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.])")
_TILDE = re.compile(r"(?<![\w/])~[\w.-]*(?:/[^\s'\":;,)]*)?")
_WINDOWS = re.compile(r"\b[A-Za-z]:\\[^\s'\":;,)]*")
_PATH = re.compile(r"(?<![\w.:/])/(?:[^\s/'\":;,()<>|]+/)*[^\s/'\":;,()<>|]+/?")
_PUBLIC_ROOTS = ("/usr/", "/opt/", "/bin/", "/sbin/", "/lib/", "/lib64/", "/etc/modules", "/dev/null")
_SUFFIX = re.compile(r"\.[A-Za-z0-9]{1,5}$")
_NAMES = re.compile(
    r"/(?:home|Users|u)/([\w.-]{3,64})|(?<![\w/])~([\w.-]{3,64})|(?<![\w.+-])([\w.+-]{3,64})@"
)
_NAMES_MOST = 200
_NOBODY = frozenset({"git", "root", "www", "admin", "user", "users", "info", "mail", "shared"})
_LONG = re.compile(r"[A-Za-z0-9+/_=-]{24,}")
_BITS = 3.6
"""Shannon entropy per character above which a long word with digits and letters is taken for a key."""


def redacted(text: str, *, people: Collection[str] = ()) -> str:
    """Return the text without secrets, e-mail addresses, paths of people, and the names in `people`.

    Names that stand in the text's own addresses and home folders are taken wherever they stand.
    """
    people = {*people, *_named_in(text)}
    text = _BLOCK.sub(SECRET, text)
    text = _KNOWN.sub(SECRET, text)
    text = _AUTHORIZATION.sub(lambda found: f"{found[1]} {SECRET}", text)
    text = _IN_URL.sub(f"{SECRET}@", text)
    text = _QUERY.sub(lambda found: f"{found[1]}={SECRET}", text)
    for named in (_NAMED, _PASS):
        text = named.sub(lambda found: f"{found[1]}{SECRET}", text)
    text = _MAIL.sub(MAIL, text)
    text = _WINDOWS.sub(PLACE, text)
    text = _TILDE.sub(PLACE, text)
    text = _PATH.sub(_place, text)
    text = _ADDRESS.sub(NUMBER, text)
    text = _LONG.sub(_key, text)
    return _without(people)(text)


def _named_in(text: str) -> set[str]:
    found = (match[1] or match[2] or match[3] for match in islice(_NAMES.finditer(text), _NAMES_MOST))
    return {name for name in found if name.lower() not in _NOBODY}


def _place(found: re.Match[str]) -> str:
    """Return a path of the system itself as it stands; of any other only the kind of file."""
    path = found[0]
    if path.startswith(_PUBLIC_ROOTS):
        return path
    suffix = _SUFFIX.search(path.rstrip("/"))
    return PLACE + (suffix[0] if suffix else "")


def _key(found: re.Match[str]) -> str:
    word = found[0]
    is_mixed = any(char.isdigit() for char in word) and any(char.isalpha() for char in word)
    return SECRET if is_mixed and _entropy_bits(word) > _BITS else _hex(word)


def _hex(word: str) -> str:
    is_hex = len(word) >= 32 and all(char in "0123456789abcdefABCDEF" for char in word)
    return SECRET if is_hex else word


def _entropy_bits(word: str) -> float:
    shares = [word.count(char) / len(word) for char in set(word)]
    return -sum(share * math.log2(share) for share in shares)


def _without(people: Collection[str]) -> Callable[[str], str]:
    names = sorted({re.escape(name) for name in people if len(name) >= 3}, key=len, reverse=True)
    if not names:
        return lambda text: text
    known = re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(names)})(?![A-Za-z0-9])", re.IGNORECASE)
    return lambda text: known.sub(PERSON, text)


def bounded(text: str, most: int) -> str:
    """Return at most so many characters: the beginning, and a shorter stretch of the end."""
    if len(text) <= most:
        return text
    mark = "\n[… left out …]\n"
    head = (most - len(mark)) * 3 // 5
    return text[:head] + mark + text[len(text) - (most - len(mark) - head) :]
