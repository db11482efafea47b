"""What a page says after an action: a short message, and a way back where there is one."""

from django.contrib import messages
from django.contrib.messages.storage.base import Message
from django.http import HttpRequest

_UNDO = "undo:"


def tell(request: HttpRequest, words: str, *, level: int = messages.SUCCESS, undo: str = "") -> None:
    """Say `words` on the next page; `undo` is the path that takes it back by POST, "" = none."""
    messages.add_message(request, level, words, extra_tags=f"{_UNDO}{undo}" if undo else "")


def undo_of(message: Message) -> str:
    """Return the path that takes back what the message tells of; "" = none."""
    tags = message.extra_tags or ""
    return tags.removeprefix(_UNDO) if tags.startswith(f"{_UNDO}/") else ""
