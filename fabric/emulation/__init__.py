"""A fabric made real: hosts, links and switches of this world's kernel."""
