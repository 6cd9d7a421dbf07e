"""What commands, pages and Python programs all do: start a sweep, ask and tell, answer about a stored one, keep it."""
