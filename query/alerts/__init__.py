"""Rules over what tenants log, evaluated again and again, and whom they tell."""
