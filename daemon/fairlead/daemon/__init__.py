"""The dispatcher process: spool intake, the loop, dispatch."""
