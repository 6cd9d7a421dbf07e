"""Where trials run. Each backend implements `protein.ports.Backend`."""
