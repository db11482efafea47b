"""One call of an emulated program: its arguments, its caller, and what it prints.

`options` reads an argument list as getopt_long does: bundled short options, unique prefixes of long
ones, and its words for everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from providers.sandbox.slurm.store import Store

NONE, NEEDS, MAY = 0, 1, 2
"""Whether an option takes an argument."""


class Refused(Exception):
    """The program ends here with these words on stderr."""

    def __init__(self, words: str, code: int = 1) -> None:
        super().__init__(words)
        self.words, self.code = words, code


class Call:
    """One call; `out` and `err` collect what is printed, without line ends."""

    def __init__(
        self,
        program: str,
        argv: list[str],
        *,
        store: Store,
        now: float,
        user: str,
        env: Mapping[str, str],
        cwd: str,
        stdin: Callable[[], str],
    ) -> None:
        self.program, self.argv = program, argv
        self.store, self.now, self.user = store, now, user
        self.env, self.cwd, self.stdin = env, cwd, stdin
        self.out: list[str] = []
        self.err: list[str] = []

    def say(self, line: str) -> None:
        """Print a line."""
        self.out.append(line)

    def complain(self, line: str) -> None:
        """Print a line on stderr."""
        self.err.append(line)


class Options:
    """Parsed options: `values[name]` is the argument or "" for a flag; `rest` are the operands."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.rest: list[str] = []

    def has(self, *names: str) -> bool:
        """Return whether any of the options was given."""
        return any(name in self.values for name in names)

    def get(self, name: str, default: str = "") -> str:
        """Return an option's argument."""
        return self.values.get(name, default)

    def names(self, name: str) -> list[str]:
        """Return a comma-separated argument as a list."""
        return [part for part in self.values.get(name, "").split(",") if part]


def options(
    program: str,
    argv: list[str],
    longs: Mapping[str, int],
    shorts: Mapping[str, str],
    *,
    stop_at_operand: bool = False,
) -> Options:
    """Return the options of `argv`; `longs` maps names to NONE/NEEDS/MAY, `shorts` letters to names.

    Raises:
        Refused: an unknown or ambiguous option, or one without its argument.
    """
    found = Options()
    words = list(argv)
    while words:
        word = words.pop(0)
        if word == "--":
            found.rest.extend(words)
            break
        if word.startswith("--"):
            _long(program, word[2:], words, longs, found)
        elif word.startswith("-") and len(word) > 1:
            _short(program, word[1:], words, found, longs=longs, shorts=shorts)
        else:
            found.rest.append(word)
            if stop_at_operand:
                found.rest.extend(words)
                break
    return found


def hint(program: str) -> str:
    """Return the line that follows every complaint about options."""
    return f'Try "{program} --help" for more information'


def _long(program: str, word: str, words: list[str], longs: Mapping[str, int], found: Options) -> None:
    name, equals, value = word.partition("=")
    matches = [name] if name in longs else [known for known in longs if known.startswith(name)]
    if not matches:
        raise Refused(f"{program}: unrecognized option '--{name}'\n{hint(program)}")
    if len(matches) > 1:
        listed = " ".join(f"'--{match}'" for match in matches)
        raise Refused(f"{program}: option '--{name}' is ambiguous; possibilities: {listed}\n{hint(program)}")
    name, takes = matches[0], longs[matches[0]]
    if takes == NONE and equals:
        raise Refused(f"{program}: option '--{name}' doesn't allow an argument\n{hint(program)}")
    if takes == NEEDS and not equals:
        if not words:
            raise Refused(f"{program}: option '--{name}' requires an argument\n{hint(program)}")
        value = words.pop(0)
    found.values[name] = value


def _short(
    program: str,
    letters: str,
    words: list[str],
    found: Options,
    *,
    longs: Mapping[str, int],
    shorts: Mapping[str, str],
) -> None:
    while letters:
        letter, letters = letters[0], letters[1:]
        name = shorts.get(letter)
        if name is None:
            raise Refused(f"{program}: invalid option -- '{letter}'\n{hint(program)}")
        if longs[name] == NONE:
            found.values[name] = ""
            continue
        if longs[name] == NEEDS and not letters:
            if not words:
                raise Refused(f"{program}: option requires an argument -- '{letter}'\n{hint(program)}")
            letters = words.pop(0)
        found.values[name] = letters
        return
