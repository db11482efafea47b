"""What each page shows, as frozen values: pure functions from selectors' values to templates."""
