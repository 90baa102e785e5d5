"""The search language: parsed, and turned into SQL of both engines."""
