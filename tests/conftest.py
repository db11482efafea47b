"""What every test may rely on."""

import os

from hypothesis import settings

# The same examples every time where a run decides whether work lands; fresh ones at the desk.
settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("desk", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "desk")
