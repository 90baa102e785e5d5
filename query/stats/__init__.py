"""Figures over what a search finds, by groups."""
