"""Claims that hold for whatever the strategies draw."""
