"""The embedded PostgreSQL and Valkey: real servers from wheels, run by a launcher of our own."""
