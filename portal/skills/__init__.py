"""The typed skills, one registry; REST, MCP, OpenAPI and the bundle are made from it."""
