"""Envelopes proposed by a model, where one is configured: redacted words in, validated figures out."""
