"""One question a module, with its config and its figures; and the command that runs them."""
