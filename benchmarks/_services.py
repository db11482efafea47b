"""Import first: the product on an embedded PostgreSQL and Valkey, in a directory that is gone afterwards."""

import os
import sys
import tempfile
from importlib import import_module
from pathlib import Path

_DIRECTORY = tempfile.TemporaryDirectory(prefix="facet-benchmark-")
HOME = Path(_DIRECTORY.name)

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ["DATA_DIR"] = _DIRECTORY.name
import_module("tests.services")  # servers come before Django's settings
import_module("django").setup()
