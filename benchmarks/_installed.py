"""Import first: the product's code on the database of a running installation, which DATA_DIR names."""

import os
from importlib import import_module

os.environ["DJANGO_SETTINGS_MODULE"] = "portal.settings"
import_module("django").setup()
