"""The controller's process: keeps switches at their routes by OpenFlow. Only here Ryu is imported."""
