"""`python -m facet_cli`."""

import sys

from facet_cli.program import main

if __name__ == "__main__":
    sys.exit(main())
