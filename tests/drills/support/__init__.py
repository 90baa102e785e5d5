"""What the drills share: the page, the stack, the alerts."""
