"""Systems, connections, snapshots and credits: what may be used, and what was last seen of it."""
