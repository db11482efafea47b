"""The API's callers."""

from tests.api.conftest import (
    _fresh_rates,
    _no_listener_left,
    alice,
    api,
    caller,
)

__all__ = ["_fresh_rates", "_no_listener_left", "alice", "api", "caller"]
