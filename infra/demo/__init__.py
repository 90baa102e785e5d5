"""What feeds the demo: generated logs in realistic shapes, and the live logs of the stack's own services.

Generators are pure: a seed, and the times they are asked for, give the same bytes. Only `collector`,
`file_tail`, `producer` and `produce` read files or talk to Kafka.
"""
