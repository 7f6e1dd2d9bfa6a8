"""Bodies on the wire: JSON, Arrow, .npy and tensors to columns and back; errors as answers."""
