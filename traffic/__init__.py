"""Programs that run inside the hosts and load the fabric, with their pure schedules."""
