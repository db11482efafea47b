"""Telling the outside of events: signed requests by Standard Webhooks, sent at least once."""
