"""What is told of results: figures, comparisons, the page of a run."""
