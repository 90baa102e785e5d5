"""Tables that cannot be written for now: their records are kept aside and written later."""
