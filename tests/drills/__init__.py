"""Disasters on the real stack, and the way out of each as its page in docs/runbooks has it."""
