"""MCP at /mcp, generated from the registry of skills; loaded when it is first asked for."""
