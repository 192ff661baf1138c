"""The fairlead command."""
