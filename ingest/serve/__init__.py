"""The tools over HTTP: a process of its own, so that asking never costs the ingesters anything."""
