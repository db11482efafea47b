"""How a host without a scheduler speaks: a small queue of its own, kept in files by a shipped program."""
