"""How data travels, storage to storage; bytes never pass through Facet."""
