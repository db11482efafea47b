"""What a job is given to report milestones with: a small script and a token, as files only its user can read.

The token is never part of the job's script: schedulers keep scripts, and show them. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from shlex import quote

from orchestrator.leavings import DROPPED, OWN_FOLDER
from providers.types import MakeDirs, Operation, WriteFile

NAME = "facet-milestone"

SCRIPT = """\
#!/bin/sh
# facet-milestone TEXT...: report a milestone of this job. It never fails the job.
# Without network, token or curl the text is left as a file and reported when the job has ended.
text=$(printf '%.400s' "$*" | tr '\\000-\\037' ' ')
[ -n "$text" ] || exit 0
token=${FACET_JOB_TOKEN:-$(cat "${0%/*}/token" 2>/dev/null)}
if [ -n "$token" ] && [ -n "${FACET_MILESTONE_URL:-}" ]; then
    # The token goes in by a pipe: arguments can be read by everybody on the node.
    printf 'header = "Authorization: Bearer %s"\\n' "$token" |
        curl -fsS -m 10 -o /dev/null -K - -H 'Content-Type: text/plain' \\
            --data-binary "$text" "$FACET_MILESTONE_URL" 2>/dev/null && exit 0
fi
folder=${FACET_MILESTONE_DIR:-.facet-milestones}
mkdir -p "$folder" 2>/dev/null
printf '%s\\n' "$text" >"$folder/$(date +%s 2>/dev/null)-$$.txt" 2>/dev/null
exit 0
"""


@dataclass(frozen=True, slots=True)
class Kit:
    """Where a job finds its own kit at the site."""

    folder: str
    url: str

    @property
    def script(self) -> str:
        """Return the path of the script."""
        return f"{self.folder}/{NAME}"

    @property
    def token(self) -> str:
        """Return the path of the file that holds the token."""
        return f"{self.folder}/token"

    def variables(self, workdir: str) -> Mapping[str, str]:
        """Return the variables of the job; the token is none of them."""
        return {
            "FACET_MILESTONE": self.script,
            "FACET_MILESTONE_URL": self.url,
            "FACET_MILESTONE_DIR": f"{workdir.rstrip('/')}/{DROPPED}",
        }

    def setup(self) -> tuple[str, ...]:
        """Return the set-up line that reads the token; without the file it is empty, and nothing fails."""
        return (f'export FACET_JOB_TOKEN="$(cat -- {quote(self.token)} 2>/dev/null || true)"',)

    def operations(self, token: str) -> tuple[Operation, ...]:
        """Return what puts the kit there, before the job is submitted; none of it stops a submission."""
        return (
            MakeDirs(name="kit-above", path=self.folder.rpartition("/")[0]),
            MakeDirs(name="kit-folder", path=self.folder),
            WriteFile(name="kit-token", path=self.token, text=token, mode=0o600),
            WriteFile(name="kit-script", path=self.script, text=SCRIPT, mode=0o700),
        )


def kit_of(attempt_folder: str, url: str) -> Kit | None:
    """Return the kit of an attempt; None where jobs are not to report (no `url`)."""
    return Kit(f"{attempt_folder.rstrip('/')}/{OWN_FOLDER}", url) if url else None
