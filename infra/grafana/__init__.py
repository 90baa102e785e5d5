"""Grafana's dashboards of Firn, made from code."""
