"""What does a NIC that pauses its switch take with it, and what does a watchdog cure? Its config, cases, theory."""
