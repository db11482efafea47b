"""How we reach a site, how its scheduler speaks, what it has."""
