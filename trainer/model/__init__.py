"""The network: encoder, recurrent layers, action distributions and value heads."""
