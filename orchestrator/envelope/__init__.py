"""What a task needs, as a value: the ResourceEnvelope, its spellings, its drafts from scripts and words."""
