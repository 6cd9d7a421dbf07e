"""The local page: `protein view` serves what is in `static/`, and answers what it asks from a store."""
