"""The verbs: every write of tasks and attempts, each in one transaction with its events."""
