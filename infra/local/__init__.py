"""The local supervisor: services as child processes on free loopback ports."""
