"""What does it buy whom to send the packets of one flow on all paths? Its config, its cases, its summary."""
