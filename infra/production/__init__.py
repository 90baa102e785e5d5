"""What somebody's own production lacks or leaves open: `python -m infra doctor --production`.

Each module is one check: `judge` is pure and says what facts mean, `look` gets the facts from the settings
and from the world that they name.
"""
