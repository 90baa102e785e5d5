"""The stack on one machine: starts, watches and stops the services of Firn and what they need."""
