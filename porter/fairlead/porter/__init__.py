"""What only root can do: becoming users, and starting units."""
