"""Tasks, attempts, placement and events: what was asked, decided and done."""
