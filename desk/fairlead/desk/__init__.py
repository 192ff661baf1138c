"""Every operation that an interface offers, for a caller and with his rights."""
