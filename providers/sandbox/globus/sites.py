"""Running tasks: a few worker processes per endpoint, user and configuration, fed from one queue."""

import base64
import contextlib
import json
import os
import pickle
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from providers.sandbox.globus.spec import Endpoint, EndpointState, ResultFault
from providers.sandbox.globus.state import State

_WORKER = Path(__file__).with_name("worker.py")
_ASLEEP_PAUSE_S = 0.05
_PASSED_ON = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TMPDIR")


class _Trap:
    """Unpickling it would run a program; nobody who asked for JSON must ever do so."""

    def __reduce__(self) -> tuple[Callable[..., int], tuple[str]]:
        return os.system, ("touch /tmp/facet-opened-a-pickle",)


def malicious_result() -> str:
    """Return a result in the SDK's pickled form that runs a program where it is opened."""
    return "00\n" + base64.encodebytes(pickle.dumps(_Trap())).decode()


class Lost(Exception):
    """The worker ended before it answered."""


class Worker:
    """One process that runs one task at a time."""

    def __init__(self, env: Mapping[str, str], ids: tuple[int, int] | None = None) -> None:
        self._env = dict(env)
        self._words = [] if ids is None else [str(ids[0]), str(ids[1]), str(ids[1])]
        self._process: subprocess.Popen[str] | None = None
        self._is_stopped = False
        self._lock = threading.Lock()

    def run(self, task: Mapping[str, Any]) -> dict[str, Any]:
        """Run a task.

        Raises:
            Lost: the process died.
        """
        process = self._running()
        assert process.stdin is not None  # noqa: S101  # opened so
        assert process.stdout is not None  # noqa: S101  # as above
        try:
            process.stdin.write(json.dumps(task) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except OSError as error:
            raise Lost(str(error)) from error
        if not line:
            raise Lost(f"the worker ended with {process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _running(self) -> "subprocess.Popen[str]":
        with self._lock:
            if self._is_stopped:
                raise Lost("the endpoint stops")
            if self._process is None or self._process.poll() is not None:
                self._bury()
                home = self._env.get("HOME", "/")
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", str(_WORKER), *self._words],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    env=self._env,
                    cwd=home if Path(home).is_dir() else "/",
                )
            return self._process

    def _bury(self) -> None:
        """End what is left of the process."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self._process = None

    def stop(self) -> None:
        """End the process for good."""
        with self._lock:
            self._is_stopped = True
            if self._process is not None:
                self._process.kill()

    def forget(self) -> None:
        """Let go of the process once nobody reads from it any more."""
        with self._lock:
            self._bury()


class Sites:
    """Every endpoint's workers."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._queues: dict[str, queue.Queue[str | None]] = {}
        self._workers: list[Worker] = []
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._stopped = threading.Event()

    def put(self, endpoint: Endpoint, sub: str, config: Mapping[str, Any], task_id: str) -> None:
        """Hand a task to the workers of this user at this endpoint, starting them at the first task."""
        key = json.dumps([endpoint.id, sub, config], sort_keys=True)
        with self._lock:
            if key not in self._queues:
                self._queues[key] = queue.Queue()
                self._start(endpoint, sub, self._queues[key])
            self._queues[key].put(task_id)

    def _start(self, endpoint: Endpoint, sub: str, tasks: "queue.Queue[str | None]") -> None:
        own = {name: value for name, value in os.environ.items() if name in _PASSED_ON}
        env = {**own, **endpoint.env, **endpoint.users.get(sub, {})}
        for _ in range(endpoint.workers):
            worker = Worker(env, endpoint.ids.get(sub))
            thread = threading.Thread(target=self._serve, args=(endpoint.id, worker, tasks), daemon=True)
            self._workers.append(worker)
            self._threads.append(thread)
            thread.start()

    def _serve(self, endpoint_id: str, worker: Worker, tasks: "queue.Queue[str | None]") -> None:
        while (task_id := tasks.get()) is not None:
            self._wait_while_asleep(endpoint_id)
            if self._stopped.is_set():
                return
            self._run(task_id, worker)

    def _wait_while_asleep(self, endpoint_id: str) -> None:
        while not self._stopped.wait(0):
            endpoint = self._state.endpoint(endpoint_id)
            if endpoint is None or endpoint.state is not EndpointState.ASLEEP:
                return
            self._stopped.wait(_ASLEEP_PAUSE_S)

    def _run(self, task_id: str, worker: Worker) -> None:
        rows = self._state.run("SELECT doc FROM task WHERE id = ?", task_id)
        task = json.loads(rows[0]["doc"])
        fault = self._state.result_fault()
        if fault is ResultFault.KILLED:
            task["dies"] = True
        try:
            answer = worker.run(task)
        except Lost as error:
            answer = {"exception": f"parsl.executors.high_throughput.errors.WorkerLost: {error}"}
        if fault is ResultFault.LOST or self._stopped.is_set():
            return
        if fault is ResultFault.PICKLE:
            answer = {"result": malicious_result()}
        if fault is ResultFault.TOO_LARGE:
            answer = {"exception": "globus_compute_sdk.errors.MaxResultSizeExceeded: 11000000 bytes"}
        self._finish(task_id, answer)

    def _finish(self, task_id: str, answer: Mapping[str, Any]) -> None:
        self._state.run(
            "UPDATE task SET status = ?, result = ?, exception = ?, completion_t = ?, details = ?, doc = '{}'"
            " WHERE id = ?",
            "success" if "result" in answer else "failed",
            answer.get("result"),
            answer.get("exception"),
            str(time.time()),
            json.dumps(answer.get("details") or {}),
            task_id,
        )

    def stop(self) -> None:
        """End every worker."""
        self._stopped.set()
        with self._lock:
            for tasks in self._queues.values():
                for _ in self._threads:
                    tasks.put(None)
        for worker in self._workers:
            worker.stop()
        for thread in self._threads:
            thread.join(5)
        for worker in self._workers:
            worker.forget()
