"""Places of data: `globus://COLLECTION/path` and `file:///path`, read once and told in one way. Pure.

A path is taken as it is written (`%20` is not a space). A slash at its end = a folder.
"""

import re
from dataclasses import dataclass, replace

from providers.errors import InvalidInput

MOST_CHARS = 1000
GLOBUS, FILE = "globus", "file"
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
FORMS = "write globus://COLLECTION/path or file:///path"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a file or folder is."""

    scheme: str
    collection: str
    """Id of the Globus collection; "" for `file`."""
    path: str
    """Absolute within the collection, or on the machine that runs Facet."""

    @property
    def is_folder(self) -> bool:
        """Whether a folder is meant, whole."""
        return self.path.endswith("/")

    @property
    def name(self) -> str:
        """The last part of the path; "" for the root."""
        return self.path.rstrip("/").rpartition("/")[2]

    @property
    def uri(self) -> str:
        """The same as text."""
        return f"{self.scheme}://{self.collection}{self.path}"

    def within(self, relative: str) -> "Place":
        """Return what lies at a relative path below this folder."""
        return replace(self, path=f"{self.path.rstrip('/')}/{relative}")

    def relative_to(self, folder: "Place") -> str | None:
        """Return the path below a folder; None = it does not lie there."""
        if (self.scheme, self.collection) != (folder.scheme, folder.collection):
            return None
        base = folder.path.rstrip("/") + "/"
        if self.path.rstrip("/") + "/" == base:
            return ""
        return self.path.removeprefix(base) if self.path.startswith(base) else None


def read_place(text: str, *, pointer: str = "") -> Place:
    """Return the place that a URI names.

    Raises:
        InvalidInput: it names none; says what is wrong and how to write it.
    """
    code, fault = _fault(text)
    if fault:
        raise InvalidInput(f"{text[:200]!r}: {fault}", problems=((pointer, code, fault),))
    scheme, _, rest = text.partition("://")
    collection, _, path = rest.partition("/")
    return Place(scheme, "" if scheme == FILE else collection.lower(), "/" + path)


def _fault(text: str) -> tuple[str, str]:
    """Return code and sentence of the first thing that is wrong; both empty = nothing is."""
    scheme, separator, rest = text.partition("://")
    host, slash, path = rest.partition("/")
    parts = path.split("/")
    checks = (
        (not separator or scheme not in (GLOBUS, FILE), "bad_uri_scheme", f"no such scheme; {FORMS}."),
        (len(text) > MOST_CHARS, "too_long", f"is longer than {MOST_CHARS} characters."),
        (any(ord(c) < 32 or ord(c) == 127 for c in text), "bad_uri", "holds a control character."),
        (
            scheme == GLOBUS and not _UUID.fullmatch(host.lower()),
            "bad_collection",
            "the collection must be its id (a UUID, as app.globus.org shows it).",
        ),
        (
            scheme == FILE and host not in ("", "localhost"),
            "bad_uri",
            f"file:// names no host; write file:///path, not file://{host[:40]}/….",
        ),
        (not slash, "bad_uri", f"has no path; {FORMS}."),
        (
            bool({".", ".."} & {*parts}),
            "bad_path",
            "the path must not hold `.` or `..` parts; write the path that is meant.",
        ),
        ("" in parts[:-1], "bad_path", "the path holds an empty part (`//`)."),
    )
    return next(((code, sentence) for is_so, code, sentence in checks if is_so), ("", ""))
