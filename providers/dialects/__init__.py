"""How each scheduler speaks: argument lists out, values in. Pure; nothing here runs anything."""
