"""The page to explore a run: what it shows as a value (``model``), and the page itself, as one file or served."""
