"""REST, made from the skill registry and the read views."""
