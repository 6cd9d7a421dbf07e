"""What a Python program uses: ask and tell, a sweep over a function, stores by name, the recommended config."""
