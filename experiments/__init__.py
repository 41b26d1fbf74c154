"""One module per question, with its config and its figures; and the command that runs them."""
