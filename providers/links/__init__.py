"""How a batch of operations reaches a site: on this host, or through Globus Compute."""
