"""`python -m portal.demo.sandbox`: keep the demo's emulated clusters moving."""

import sys

from portal import env as environment
from providers.sandbox.slurm.daemon import serve


def main() -> int:
    """Serve every emulated cluster of this data directory until told to stop."""
    root = environment.load().data_dir / "sandbox"
    return serve([str(place) for place in sorted(root.iterdir()) if (place / "state.db").exists()])


if __name__ == "__main__":
    sys.exit(main())
