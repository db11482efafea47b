"""What each page shows, as frozen values: pure functions from what selectors return to what templates draw."""
