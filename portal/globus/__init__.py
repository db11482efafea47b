"""Access that people delegate through Globus: signing in, connecting, tokens, and the links made of them."""
