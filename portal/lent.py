"""Threads that asynchronous views borrow for the moments in which they need the database."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

from django.db import connection

T = TypeVar("T")


class Lent:
    """A few threads for many callers: each has one for milliseconds, and no connection afterwards."""

    def __init__(self, count: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(count, thread_name_prefix=name)

    async def borrow(self, work: Callable[[], T]) -> T:
        """Run something in one of the threads; what it logs carries the request's id."""

        def run() -> T:
            try:
                return work()
            finally:
                connection.close()

        return await asyncio.get_running_loop().run_in_executor(self._pool, copy_context().run, run)
