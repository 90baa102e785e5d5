"""Search: the language, the plan, both engines, the API."""
