"""Programs that measure; each prints its table. Importable, so that tests may hold their parts to account."""
