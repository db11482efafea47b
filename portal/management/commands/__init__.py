"""Commands of the product."""
