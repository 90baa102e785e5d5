"""`python -m ingest`: run the fan-out, and look after it."""

# A worker that is spawned imports this module under another name; it needs no command.
if __name__ == "__main__":
    from ingest.cli.program import app
    from lake.command_line import run_program

    run_program(app)
