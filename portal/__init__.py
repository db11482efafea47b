"""The edges: pages, REST, MCP, admin, clock and queue."""
