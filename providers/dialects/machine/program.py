"""The shipped program as one operation: a short loader on the command line, program and request on stdin.

The program's modules are our own files of `host/`, read once with this module; no site file is touched.
"""

import json
from importlib import resources
from typing import Any, Final

from providers.types import Exec

_PACKAGE: Final = "providers.dialects.machine.host"
_ORDER: Final = ("facts", "store", "queue", "supervise", "verbs")
"""Each imports only those before it."""
SOURCES: Final = tuple(
    (name, resources.files(_PACKAGE).joinpath(f"{name}.py").read_text(encoding="utf-8")) for name in _ORDER
)
_LOADER: Final = f"""\
import json, sys, types
request = json.load(sys.stdin)
host = sys.modules["{_PACKAGE}"] = types.ModuleType("{_PACKAGE}")
for name, text in request.pop("program"):
    module = sys.modules["{_PACKAGE}." + name] = types.ModuleType(name)
    setattr(host, name, module)
    exec(compile(text, "facet-machine/" + name + ".py", "exec"), module.__dict__)
sys.exit(host.verbs.main(request))
"""


def operation(verb: str, *, timeout_s: float, **request: Any) -> Exec:
    """Return the operation that asks this host one thing; the verb also shows in its process list."""
    return Exec(
        name=verb,
        argv=("python3", "-I", "-S", "-c", _LOADER, "facet-machine", verb),
        stdin=json.dumps({"verb": verb, "program": SOURCES, **request}),
        timeout_s=timeout_s,
        max_bytes=16 * 1024 * 1024,
    )
