"""What of a message goes nowhere as it is: dropped, hashed or cut before it is routed."""
