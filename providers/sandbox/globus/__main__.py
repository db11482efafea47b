"""`python -m providers.sandbox.globus STATE.db PORT`: serve until told to stop.

`python -m providers.sandbox.globus STATE.db arm '{"path": "/v2/batch_status", "status": 503, "times": 5}'`
has something go wrong in a stand-in that serves the same file.
`result lost|pickle|killed|too_large` happens to the next result, `move corrupt|denied|quota` to the next file
that is moved; `disarm` forgets what has not happened yet; `expire` lets every access token expire;
`endpoint ID online|offline|asleep` changes an endpoint.
"""

import signal
import sys
import threading
from pathlib import Path

from providers.sandbox.globus.server import StandIn
from providers.sandbox.globus.spec import EndpointState, Fault, MoveFault, ResultFault
from providers.sandbox.globus.state import State


def serve(path: Path, port: int) -> int:
    """Serve until SIGTERM or SIGINT."""
    server = StandIn(path, port)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: threading.Thread(target=server.shutdown).start())
    sys.stdout.write(f"stand-in of Globus at {server.url}\n")
    sys.stdout.flush()
    server.serve_forever(poll_interval=0.2)
    server.end()
    return 0


def control(path: Path, words: list[str]) -> int:
    """Change the state that a running stand-in serves."""
    state = State(path)
    match words:
        case ["arm", text]:
            state.arm(Fault.model_validate_json(text))
        case ["result", word]:
            state.arm_result(ResultFault(word))
        case ["move", word]:
            state.arm_move(MoveFault(word))
        case ["disarm"]:
            state.disarm()
        case ["expire"]:
            state.expire()
        case ["endpoint", key, word]:
            state.set_endpoint(key, EndpointState(word))
        case _:
            sys.stderr.write(f"{__doc__}\n")
            return 2
    state.close()
    return 0


def main(argv: list[str]) -> int:
    """Serve or control."""
    if len(argv) == 2 and argv[1].isdigit():
        return serve(Path(argv[0]), int(argv[1]))
    return control(Path(argv[0]), argv[1:]) if len(argv) > 1 else control(Path("/dev/null"), [])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
