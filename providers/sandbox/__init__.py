"""Sites that need nothing: emulated schedulers for demonstrations and tests."""
