"""`python -m portal.demo.globus_serve`: serve this data directory's stand-in of Globus until told to stop."""

import sys

from portal import env as environment
from portal.demo import globus_place
from providers.sandbox.globus.__main__ import serve


def main() -> int:
    """Serve."""
    data_dir = environment.load().data_dir
    return serve(globus_place.state_file(data_dir), globus_place.read(data_dir).port)


if __name__ == "__main__":
    sys.exit(main())
