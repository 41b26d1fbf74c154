"""The cluster managers: who is alive, which chains there are, and which of several managers decides."""
