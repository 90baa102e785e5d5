"""One node: its processes, and the two engines that run them."""
