"""Run folders: their file names, readers and writers, and the provenance that each carries."""
