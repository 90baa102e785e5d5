"""What each release has written, kept small, and opened by the code of today."""
