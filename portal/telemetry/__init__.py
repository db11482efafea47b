"""What Prometheus reads at `/metrics`: how Facet stands, asked when it is asked, and how its web answers."""
