"""Which dialects there are, by the name a site profile uses."""

from collections.abc import Callable, Mapping

from providers.contracts import Dialect
from providers.dialects.machine.dialect import MachineDialect
from providers.dialects.slurm.dialect import SlurmDialect
from providers.errors import InvalidInput

DIALECTS: Mapping[str, Callable[[], Dialect]] = {"slurm": SlurmDialect, "machine": MachineDialect}


def dialect(name: str) -> Dialect:
    """Return the dialect of that name.

    Raises:
        InvalidInput: there is none.
    """
    try:
        return DIALECTS[name]()
    except KeyError:
        raise InvalidInput(f"No dialect {name!r}; known: {', '.join(DIALECTS)}.", dialect=name) from None
