"""The client library of the storage service, and the loads that clients play with it."""
