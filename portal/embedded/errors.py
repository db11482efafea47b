"""What can stop the embedded servers, each as one clear sentence."""


class EngineError(RuntimeError):
    """The embedded servers cannot be started or found; the message says why and what to do."""
