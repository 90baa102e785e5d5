"""What a load costs: on Firn by measured coefficients, on others by their published rules."""
