"""The command line: which commands there are, and how a run ends."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from facet_cli.commands import account, bridge, bundle, mcp, tasks, waiting, work
from facet_cli.commands.context import Context
from facet_cli.errors import CliError
from facet_cli.exits import Exit, told
from facet_cli.output import Output
from facet_cli.version import version
from facet_cli.work_input import waiting_time

DESCRIPTION = "Work on many supercomputers through Facet."
EPILOG = f"""Exit codes:
{told()}
For several tasks `wait` ends with the first of 8, 6, 1, 7 that holds for any.

Environment: FACET_URL and FACET_TOKEN instead of a login; FACET_SESSION names the session that waits.
`facet COMMAND --help` lists a command's options. Every command takes --json and --at PROFILE.
"""

BRIDGE_EPILOG = """What it does:
  watch TASK… --claude SESSION   add a rule: wake this session when one of these ends or needs a decision
  run                            follow the rules until stopped; keep it running: a service, tmux, nohup
  once                           tell what there is now, and end: for cron
  status                         what waits, is under way and was delivered; needs no server
  hold SESSION -- COMMAND        run a command while its session counts as alive and is not woken
  dead-letters                   what could not be delivered
  replay NAME…, replay --all     try it again
"""


class _Parser(argparse.ArgumentParser):
    """Wrong usage is a failure like any other."""

    def error(self, message: str) -> NoReturn:
        """Refuse."""
        raise CliError(message[:1].upper() + message[1:] + ".", hint=f"{self.prog} --help")


def parser() -> argparse.ArgumentParser:
    """Return the whole command line."""
    shared = _Parser(add_help=False)
    shared.add_argument("--json", action="store_true", help="print JSON")
    shared.add_argument("--at", metavar="PROFILE", help="which login to use")
    top = _Parser(
        prog="facet",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"facet {version()}")
    commands = top.add_subparsers(dest="command_name", metavar="COMMAND", required=True, parser_class=_Parser)

    def command(name: str, run: Callable[[Context], Exit]) -> argparse.ArgumentParser:
        sentence = (run.__doc__ or "").split("\n")[0]
        made = commands.add_parser(
            name, help=sentence, description=sentence, parents=[shared], allow_abbrev=False
        )
        made.set_defaults(run=run)
        return made

    _account_commands(command)
    _work_commands(command)
    _task_commands(command)
    _event_commands(command)
    return top


Adding = Callable[[str, Callable[[Context], Exit]], argparse.ArgumentParser]


def _account_commands(command: Adding) -> None:
    one = command("login", account.login)
    one.add_argument("url", help="address of the server")
    one.add_argument(
        "--token-file", metavar="FILE", help="read the token there; else the terminal or standard input"
    )
    command("logout", account.logout).add_argument(
        "--revoke", action="store_true", help="end the token for good"
    )
    command("whoami", account.whoami)
    one = command("systems", account.systems)
    one.add_argument("systems", nargs="*", help="only these")
    one.add_argument("--history", action="store_true", help="the last hours as well")
    one.add_argument("--full", action="store_true", help="everything, however long")
    one = command("skills", account.skills)
    one.add_argument("name", nargs="?", help="show this one with its schemas")
    one.add_argument("--input", metavar="JSON", help="call it with this object; - reads standard input")
    one = command("bundle", bundle.bundle)
    one.add_argument("--claude", metavar="DIR", help="folder of skills, for example ~/.claude/skills")
    one.add_argument("--codex", metavar="DIR", help="folder of skills, for example ~/.codex/skills")
    one.add_argument("--output", metavar="FILE", help="keep the zip file")
    command("version", account.show_version)


def _work_commands(command: Adding) -> None:
    one = command("draft", work.draft)
    one.add_argument("script", nargs="?", help="a batch script, or - for standard input")
    one.add_argument("--text", help="what is needed, in plain words")
    one.add_argument("--dialect", help="slurm, pbs, lsf, flux, sge, cobalt, oar")
    one = command("preview", work.preview)
    work.add_work_options(one)
    one.add_argument("--full", action="store_true", help="every detail")
    one = command("submit", work.submit)
    work.add_work_options(one)
    one.add_argument("--idempotency-key", metavar="KEY", help="of your own; else one is made and used again")
    one.add_argument(
        "--wait-s", type=float, metavar="S", help="how long the server may wait for the site, 0 to 50"
    )
    one.add_argument("--wait", action="store_true", help="stay until the task ends")
    _waiting_options(one)
    one = command("group", work.group)
    one.add_argument("file", help="the group as JSON")
    one.add_argument("--idempotency-key", metavar="KEY", help="of your own")
    one.add_argument("--wait", action="store_true", help="stay until the group ends")
    _waiting_options(one)
    one = command("move", work.move)
    one.add_argument("source", help="globus://COLLECTION/path or file:///path; a folder ends with a slash")
    one.add_argument("destination", help="where to; ends with a slash: into that folder")
    one.add_argument("--recursive", action="store_true", help="a folder, whole")
    one.add_argument("--sha256", metavar="HEX", help="a file that has another checksum is refused")
    one.add_argument("--deadline", metavar="TIME", help="until when it is tried, ISO 8601; else 24 h")
    one.add_argument("--label", help="what the storage's own pages call it")
    one.add_argument("--task", metavar="TASK", help="the task it is for")
    one.add_argument("--idempotency-key", metavar="KEY", help="of your own")
    one.add_argument("--wait", action="store_true", help="stay until the data has arrived")
    _waiting_options(one)


def _waiting_options(one: argparse.ArgumentParser) -> None:
    one.add_argument(
        "--timeout",
        type=waiting_time,
        metavar="TIME",
        help="give up waiting after 90 (seconds), 5m or 2h (exit 11)",
    )
    one.add_argument("--poll", action="store_true", help="long polls instead of the stream")
    one.add_argument(
        "--session", metavar="ID", help="the agent's session that waits: the bridge leaves it alone"
    )


def _task_commands(command: Adding) -> None:
    one = command("status", tasks.status)
    one.add_argument("tasks", nargs="*", metavar="TASK", help="these; else the newest")
    one.add_argument("--state", action="append", help="only in these states")
    one.add_argument("--name", help="only of this name")
    one.add_argument("--limit", type=int, default=20, help="how many, at most 200")
    one = command("wait", waiting.wait)
    one.add_argument("tasks", nargs="+", metavar="TASK", help="tasks, groups, transfers")
    one.add_argument("--any", action="store_true", help="until the first of them has ended")
    _waiting_options(one)
    one = command("log", tasks.log)
    one.add_argument("task", metavar="TASK")
    one.add_argument("-f", "--follow", action="store_true", help="go on until it ends")
    one.add_argument("--stderr", action="store_true", help="the error output")
    one.add_argument("--attempt", metavar="ATT", help="of this attempt")
    one.add_argument("--offset", type=int, default=0, help="from this byte")
    # `tail` itself holds what follows `--`.
    one.add_argument("--tail", dest="last_bytes", type=int, metavar="BYTES", help="only the last bytes")
    one = command("result", tasks.result)
    one.add_argument("task", metavar="TASK")
    one.add_argument("--full", action="store_true", help="everything, however long")
    one = command("cancel", tasks.cancel)
    one.add_argument("handles", nargs="+", metavar="TASK")
    one = command("replan", tasks.replan)
    one.add_argument("task", metavar="TASK")
    one.add_argument("--without", action="append", metavar="SYSTEM", help="never these systems")
    work.add_size_options(one)


def _event_commands(command: Adding) -> None:
    one = command("events", waiting.events)
    one.add_argument(
        "--after", type=int, metavar="CURSOR", help="from there; else from the beginning, with -f from now"
    )
    one.add_argument("--types", action="append", metavar="TYPE", help="task.failed, task.*")
    one.add_argument("--subject", help="a task, group, attempt, transfer or system")
    one.add_argument("--limit", type=int, metavar="N", help="end after so many; without -f 1000")
    one.add_argument("-f", "--follow", action="store_true", help="go on for ever")
    one.add_argument(
        "--timeout",
        type=waiting_time,
        metavar="TIME",
        help="with -f: end after 90 (seconds), 5m or 2h (exit 11)",
    )
    one.add_argument("--poll", action="store_true", help="long polls instead of the stream")
    command("mcp", mcp.mcp)
    one = command("bridge", bridge.bridge)
    one.formatter_class = argparse.RawDescriptionHelpFormatter
    one.epilog = BRIDGE_EPILOG
    words = ("run", "once", "status", "dead-letters", "replay", "watch", "hold")
    one.add_argument("what", choices=words, help="see below")
    one.add_argument(
        "names", nargs="*", help="replay: dead letters; watch: tasks and groups; hold: the session"
    )
    one.add_argument("--all", action="store_true", help="replay: every dead letter")
    one.add_argument("--claude", metavar="SESSION", help="watch: wake this Claude Code session")
    one.add_argument("--codex", metavar="THREAD", help="watch: wake this Codex thread")
    one.add_argument("--cwd", metavar="DIR", help="watch: where the session's work is")
    one.add_argument("--name", help="watch: name of the rule")


def _check_tail(args: argparse.Namespace) -> None:
    if args.tail and args.command_name not in {"submit", "preview", "bridge"}:
        raise CliError(f"`{args.command_name}` takes no command after --.")


def _not_understood(error: Exception) -> CliError:
    """Return the failure of an answer that is not shaped as this version expects."""
    return CliError(
        f"The server's answer is not understood: {type(error).__name__} {error}.",
        exit_code=Exit.SERVER_FAILED,
        hint="See whether the command line (facet version) is as new as the server; --json shows the answer.",
        code="answer_not_understood",
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    cut = given.index("--") if "--" in given else len(given)
    given, tail = given[:cut], given[cut + 1 :]
    output = Output(as_json="--json" in given)
    try:
        args: Any = parser().parse_args(given)
        args.tail = tail
        output.streams = args.command_name in {"events", "log"}
        _check_tail(args)
        return int(args.run(Context(args, output)))
    except CliError as error:
        output.failure(error)
        return int(error.exit_code)
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        # Python's own ending, 1, would say that a task failed.
        strange = _not_understood(error)
        output.failure(strange)
        return int(strange.exit_code)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nobody reads: end quietly
        return int(Exit.OK)
    except KeyboardInterrupt:
        return int(Exit.INTERRUPTED)
