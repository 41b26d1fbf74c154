"""What a fabric is: names and addresses, links and ports, lanes. Values and pure functions, no kernel."""
