"""What every room stands on: clocks, durable files, process identity, ids, bells, safe text."""
