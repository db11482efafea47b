"""The test suite, by what each folder needs; importable so that benchmarks may use its sites."""
