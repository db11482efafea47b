"""The pages people see: each view parses, calls one verb or selector, and renders."""
