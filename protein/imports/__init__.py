"""Readers of other tools' runs."""
