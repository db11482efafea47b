"""How each scheduler speaks: commands out, values in."""
