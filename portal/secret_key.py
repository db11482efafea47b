"""The key that signs sessions: given by the environment, or made once and kept in the data directory."""

import os
import secrets
from pathlib import Path

FILE = "secret_key"


def kept_key(data_dir: Path) -> str:
    """Return the data directory's own key, making it (mode 0600) the first time.

    Two processes may start at once: the file appears whole by a hard link, and the loser reads the winner's.
    """
    path = data_dir / FILE
    if not path.exists():
        data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        aside = data_dir / f"{FILE}.{os.getpid()}"
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_urlsafe(48))
        try:
            os.link(aside, path)
        except FileExistsError:
            pass
        finally:
            aside.unlink()
    return path.read_text().strip()
