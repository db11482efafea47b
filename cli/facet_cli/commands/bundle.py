"""bundle: fetch the skill bundle and put it where a coding agent finds it."""

from __future__ import annotations

import io
import shutil
import tempfile
import zipfile
from pathlib import Path, PurePosixPath

from facet_cli.commands.context import Context
from facet_cli.errors import CliError, Unreachable
from facet_cli.exits import Exit

NAME = "facet"
_MAX_BYTES = 8 * 1024 * 1024


def bundle(context: Context) -> Exit:
    """Fetch the bundle; unpack it as DIR/facet, or keep the zip file."""
    args, output = context.args, context.output
    folders = [folder for folder in (args.claude, args.codex) if folder]
    if not folders and not args.output:
        raise CliError("Say where to: --claude DIR, --codex DIR or --output FILE.")
    answer = context.client.ask("GET", "bundle")
    if not isinstance(answer.body, bytes):
        raise Unreachable("The server did not answer with a zip file.")
    if args.output:
        Path(args.output).write_bytes(answer.body)
    placed = [str(unpack(answer.body, Path(folder).expanduser())) for folder in folders]
    tag = answer.headers.get("etag", "").strip('"')
    told = {"version": tag, "bytes": len(answer.body), "folders": placed, "file": args.output}
    if output.as_json:
        output.document(told)
    else:
        output.line(
            f"Skill bundle {tag[:12]}: {', '.join([*placed, *([args.output] if args.output else [])])}"
        )
    return Exit.OK


def unpack(content: bytes, folder: Path) -> Path:
    """Put the bundle at `folder/facet`, replacing an earlier one as a whole, and return where it is.

    Raises:
        CliError: it is no bundle, or would write elsewhere.
    """
    try:
        archive = zipfile.ZipFile(io.BytesIO(content))
    except zipfile.BadZipFile:
        raise Unreachable("The server's answer is no zip file.") from None
    with archive:
        _check(archive)
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".facet-") as aside:
            archive.extractall(aside)  # every name was checked
            for entry in archive.infolist():
                if entry.external_attr >> 16 & 0o100:
                    (Path(aside) / entry.filename).chmod(0o755)
            target = folder / NAME
            if target.exists():
                target.rename(Path(aside) / "earlier")
            shutil.move(str(Path(aside) / NAME), target)
    return target


def _check(archive: zipfile.ZipFile) -> None:
    for entry in archive.infolist():
        parts = PurePosixPath(entry.filename).parts
        is_link = entry.external_attr >> 28 == 0o12
        if not parts or parts[0] != NAME or ".." in parts or "\\" in entry.filename or is_link:
            raise CliError(f"The bundle would write to {entry.filename!r}; it was not unpacked.")
    if sum(entry.file_size for entry in archive.infolist()) > _MAX_BYTES:
        raise CliError("The bundle is larger than 8 MiB; it was not unpacked.")
    if f"{NAME}/SKILL.md" not in archive.namelist():
        raise CliError("The bundle holds no SKILL.md.")
